//! Machines on Azure: virtual machines in a resource group and a network of their own.
//!
//! In: the machines. Out: a configuration. Always: only SSH and the gateways' ports are open, and only to those whom the file names;
//! among each other the machines reach every port, as Azure has it within a network.

use super::configuration::{Configuration, first_start};
use super::{Cloud, Keys, Wanted};
use base64::Engine as _;
use serde_json::{Value, json};

pub(super) fn configuration(cloud: &Cloud, prefix: &str, keys: &Keys) -> Configuration {
    let mut to = Configuration::new("azurerm", "3.67.0", json!({ "features": {} }));
    to.resource("azurerm_resource_group", "cluster", json!({ "name": prefix, "location": cloud.place }));
    let (group, location) = ("${azurerm_resource_group.cluster.name}", "${azurerm_resource_group.cluster.location}");
    to.resource(
        "azurerm_virtual_network",
        "cluster",
        json!({ "name": prefix, "address_space": ["10.0.0.0/16"], "location": location, "resource_group_name": group }),
    );
    to.resource(
        "azurerm_subnet",
        "cluster",
        json!({
            "name": prefix, "resource_group_name": group, "address_prefixes": ["10.0.2.0/24"],
            "virtual_network_name": "${azurerm_virtual_network.cluster.name}",
        }),
    );
    to.resource(
        "azurerm_network_security_group",
        "cluster",
        json!({ "name": prefix, "location": location, "resource_group_name": group }),
    );
    let (port, gateways) = cloud.gateways;
    let last = u32::from(port) + gateways - 1;
    to.resource(
        "azurerm_network_security_rule",
        "outside",
        json!({
            "name": "outside", "priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
            "source_port_range": "*", "destination_port_ranges": ["22", format!("{port}-{last}")],
            "source_address_prefixes": cloud.open_to, "destination_address_prefix": "*",
            "resource_group_name": group,
            "network_security_group_name": "${azurerm_network_security_group.cluster.name}",
        }),
    );
    to.resource(
        "azurerm_subnet_network_security_group_association",
        "cluster",
        json!({
            "subnet_id": "${azurerm_subnet.cluster.id}",
            "network_security_group_id": "${azurerm_network_security_group.cluster.id}",
        }),
    );
    for wanted in &cloud.machines {
        let Wanted { name, machine, image, disk_gb, user, .. } = wanted;
        to.resource(
            "azurerm_public_ip",
            name,
            json!({
                "name": format!("{prefix}-{name}"), "resource_group_name": group, "location": location,
                "allocation_method": "Static", "sku": "Standard",
            }),
        );
        to.resource(
            "azurerm_network_interface",
            name,
            json!({
                "name": format!("{prefix}-{name}"), "location": location, "resource_group_name": group,
                "ip_configuration": {
                    "name": "inside", "subnet_id": "${azurerm_subnet.cluster.id}",
                    "private_ip_address_allocation": "Dynamic",
                    "public_ip_address_id": format!("${{azurerm_public_ip.{name}.id}}"),
                },
            }),
        );
        let script = base64::engine::general_purpose::STANDARD.encode(first_start(wanted, keys));
        to.resource(
            "azurerm_linux_virtual_machine",
            name,
            json!({
                "name": format!("{prefix}-{name}"), "resource_group_name": group, "location": location, "size": machine,
                "network_interface_ids": [format!("${{azurerm_network_interface.{name}.id}}")],
                "admin_username": user,
                "admin_ssh_key": { "username": user, "public_key": keys.own_public },
                "os_disk": {
                    "caching": "ReadWrite", "storage_account_type": "Premium_LRS", "disk_size_gb": disk_gb,
                },
                "source_image_reference": reference(image.as_deref()),
                "custom_data": script,
                // A newer image does not replace a machine that has state.
                "lifecycle": [{ "ignore_changes": ["source_image_reference", "custom_data"] }],
            }),
        );
        to.addresses(
            name,
            &format!("azurerm_public_ip.{name}.ip_address"),
            &format!("azurerm_network_interface.{name}.private_ip_address"),
        );
    }
    to
}

/// An image, `publisher:offer:sku:version`, as it has been checked.
fn reference(image: Option<&str>) -> Value {
    let mut parts = image.unwrap_or("Debian:debian-12:12:latest").split(':');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    json!({ "publisher": part(), "offer": part(), "sku": part(), "version": part() })
}
