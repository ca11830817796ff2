//! Machines on AWS: EC2 instances in a network of their own.
//!
//! In: the machines. Out: a configuration. Always: only SSH and the gateways' ports are open, and only to those whom the file names;
//! among each other the machines reach every port.

use super::configuration::{Configuration, first_start};
use super::{Cloud, Keys, Wanted};
use serde_json::{Value, json};

/// Debian's account, which publishes its images.
const DEBIAN: &str = "136693071363";

pub(super) fn configuration(cloud: &Cloud, prefix: &str, keys: &Keys) -> Configuration {
    let mut to = Configuration::new("aws", "5.0.0", json!({ "region": cloud.place }));
    let named = |name: &str| json!({ "Name": format!("{prefix}-{name}") });
    to.resource(
        "aws_vpc",
        "cluster",
        json!({ "cidr_block": "10.0.0.0/16", "enable_dns_hostnames": true, "enable_dns_support": true, "tags": named("network") }),
    );
    let vpc = "${aws_vpc.cluster.id}";
    to.resource("aws_internet_gateway", "cluster", json!({ "vpc_id": vpc, "tags": named("gateway") }));
    to.resource(
        "aws_subnet",
        "cluster",
        json!({
            "vpc_id": vpc, "cidr_block": "10.0.1.0/24", "availability_zone": format!("{}a", cloud.place),
            "map_public_ip_on_launch": true, "tags": named("subnet"),
        }),
    );
    to.resource("aws_route_table", "cluster", json!({ "vpc_id": vpc, "tags": named("routes") }));
    to.resource(
        "aws_route",
        "out",
        json!({
            "route_table_id": "${aws_route_table.cluster.id}", "destination_cidr_block": "0.0.0.0/0",
            "gateway_id": "${aws_internet_gateway.cluster.id}",
        }),
    );
    to.resource(
        "aws_route_table_association",
        "cluster",
        json!({ "subnet_id": "${aws_subnet.cluster.id}", "route_table_id": "${aws_route_table.cluster.id}" }),
    );
    to.resource("aws_key_pair", "cluster", json!({ "key_name": prefix, "public_key": keys.own_public }));
    let (port, gateways) = cloud.gateways;
    let last = u32::from(port) + gateways - 1;
    let open = &cloud.open_to;
    to.resource(
        "aws_security_group",
        "cluster",
        json!({
            "name": prefix, "description": "A Slackwater cluster", "vpc_id": vpc,
            "ingress": [
                rule("SSH", "tcp", (22, 22), open, false),
                rule("Gateways", "tcp", (port.into(), last), open, false),
                rule("Locations of the cluster", "tcp", (0, 65_535), &[], true),
            ],
            "egress": [rule("Out", "-1", (0, 0), &["0.0.0.0/0".to_owned()], false)],
        }),
    );
    if cloud.machines.iter().any(|machine| machine.image.is_none()) {
        to.data(
            "aws_ami",
            "debian",
            json!({
                "most_recent": true, "owners": [DEBIAN],
                "filter": [{ "name": "name", "values": ["debian-12-amd64-*"] }],
            }),
        );
    }
    for wanted in &cloud.machines {
        let Wanted { name, machine, image, disk_gb, .. } = wanted;
        to.resource(
            "aws_instance",
            name,
            json!({
                "ami": image.as_deref().unwrap_or("${data.aws_ami.debian.id}"),
                "instance_type": machine,
                "key_name": "${aws_key_pair.cluster.key_name}",
                "vpc_security_group_ids": ["${aws_security_group.cluster.id}"],
                "subnet_id": "${aws_subnet.cluster.id}",
                "associate_public_ip_address": true,
                "root_block_device": [{ "volume_size": disk_gb, "volume_type": "gp3" }],
                "user_data": first_start(wanted, keys),
                // A newer image does not replace a machine that has state.
                "lifecycle": [{ "ignore_changes": ["ami", "user_data"] }],
                "tags": named(name),
            }),
        );
        // An address that stays when the machine is stopped and started.
        to.resource(
            "aws_eip",
            name,
            json!({ "instance": format!("${{aws_instance.{name}.id}}"), "tags": named(name) }),
        );
        to.addresses(name, &format!("aws_eip.{name}.public_ip"), &format!("aws_instance.{name}.private_ip"));
    }
    to
}

/// A rule of a security group. All attributes have to be there in this form.
fn rule(what: &str, protocol: &str, (from, to): (u32, u32), open: &[String], among: bool) -> Value {
    json!({
        "description": what, "protocol": protocol, "from_port": from, "to_port": to, "cidr_blocks": open, "self": among,
        "ipv6_cidr_blocks": [], "prefix_list_ids": [], "security_groups": [],
    })
}
