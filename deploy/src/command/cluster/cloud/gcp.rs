//! Machines on Google Cloud: Compute Engine instances in a network of their own.
//!
//! In: the machines. Out: a configuration. Always: only SSH and the gateways' ports are open, and only to those whom the file names;
//! among each other the machines reach every port.

use super::configuration::{Configuration, first_start};
use super::{Cloud, Keys, Wanted};
use serde_json::json;

pub(super) fn configuration(cloud: &Cloud, prefix: &str, keys: &Keys) -> Configuration {
    let project = cloud.project.as_deref().unwrap_or_default();
    let mut to = Configuration::new("google", "4.53.1", json!({ "project": project, "zone": cloud.place }));
    to.resource(
        "google_compute_network",
        "cluster",
        json!({ "name": prefix, "project": project, "auto_create_subnetworks": true }),
    );
    let network = "${google_compute_network.cluster.name}";
    let (port, gateways) = cloud.gateways;
    let last = u32::from(port) + gateways - 1;
    to.resource(
        "google_compute_firewall",
        "inside",
        json!({
            "name": format!("{prefix}-inside"), "project": project, "network": network,
            "source_tags": [prefix], "target_tags": [prefix],
            "allow": [{ "protocol": "tcp", "ports": ["0-65535"] }],
        }),
    );
    to.resource(
        "google_compute_firewall",
        "outside",
        json!({
            "name": format!("{prefix}-outside"), "project": project, "network": network,
            "source_ranges": cloud.open_to, "target_tags": [prefix],
            "allow": [{ "protocol": "tcp", "ports": ["22", format!("{port}-{last}")] }],
        }),
    );
    // The part of the zone before its last letter.
    let region = cloud.place.rsplit_once('-').map_or(cloud.place.as_str(), |(region, _)| region);
    for wanted in &cloud.machines {
        let Wanted { name, machine, image, disk_gb, user, .. } = wanted;
        to.resource(
            "google_compute_address",
            name,
            json!({ "name": format!("{prefix}-{name}"), "project": project, "region": region }),
        );
        to.resource(
            "google_compute_instance",
            name,
            json!({
                "name": format!("{prefix}-{name}"), "project": project, "zone": cloud.place,
                "machine_type": machine, "tags": [prefix],
                "metadata": { "ssh-keys": format!("{user}:{}", keys.own_public) },
                "metadata_startup_script": first_start(wanted, keys),
                "boot_disk": [{ "initialize_params": [{
                    "image": image.as_deref().unwrap_or("debian-cloud/debian-12"), "size": disk_gb,
                }] }],
                "network_interface": [{
                    "network": "${google_compute_network.cluster.self_link}",
                    "access_config": [{ "nat_ip": format!("${{google_compute_address.{name}.address}}") }],
                }],
                // A newer image does not replace a machine that has state.
                "lifecycle": [{ "ignore_changes": ["boot_disk", "metadata_startup_script"] }],
            }),
        );
        to.addresses(
            name,
            &format!("google_compute_address.{name}.address"),
            &format!("google_compute_instance.{name}.network_interface[0].network_ip"),
        );
    }
    to
}
