"""Compares a Terraform configuration with what its provider knows: `terraform_schema.py CONFIGURATION BINDINGS PREFIX`.

Every argument and block has to be one that the provider has in that place, of its type; what it requires has to be there; what
an expression refers to has to be a resource of the configuration and one of its attributes. Says each thing that is wrong.
"""

import json
import pathlib
import re
import sys

configuration = json.load(open(sys.argv[1]))
bindings, prefix = pathlib.Path(sys.argv[2]), sys.argv[3]
META = {"lifecycle", "depends_on", "count", "provider", "for_each"}
wrong, compared = [], 0


def camel(name):
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def declarations(folder):
    """The interfaces of a resource: for each, its arguments with whether they are required and of which type."""
    text = (bindings / "lib" / folder / "index.d.ts").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for name, body in re.findall(r"export interface (\w+)[^{]*\{(.*?)\n\}", text, flags=re.S):
        members = re.findall(r"readonly (\w+)(\??): (\{.*?\}|[^;]+);", body, flags=re.S)
        found[name] = {member: (optional == "", kind.strip()) for member, optional, kind in members}
    return found, set(re.findall(r"get (\w+)\(\)", text))


def fits(value, kind):
    if isinstance(value, str):
        return "string" in kind or value.startswith("${")
    if isinstance(value, bool):
        return "boolean" in kind
    if isinstance(value, (int, float)):
        return "number" in kind
    return isinstance(value, list) and "[]" in kind or isinstance(value, dict) and kind.startswith("{")


def compare(where, given, name, interfaces):
    global compared
    known = interfaces[name]
    for argument, value in given.items():
        if argument in META:
            continue
        compared += 1
        if camel(argument) not in known:
            wrong.append(f"{where}: the provider knows no {argument}")
            continue
        kind = known[camel(argument)][1]
        block = re.match(r"(\w+)", kind)
        if block and block[1] in interfaces:
            blocks = value if isinstance(value, list) else [value]
            if len(blocks) > 1 and "[]" not in kind:
                wrong.append(f"{where}.{argument}: there may be one only")
            for inner in blocks:
                compare(f"{where}.{argument}", inner, block[1], interfaces)
        elif not fits(value, kind):
            wrong.append(f"{where}.{argument}: {value!r} is no {kind}")
    given = {camel(argument) for argument in given}
    wrong.extend(f"{where}: {need} is missing" for need, (required, _) in known.items() if required and need not in given)


attributes = {}
groups = [("", configuration["resource"]), ("data.", configuration.get("data", {}))]
for group, resources in groups:
    for resource, instances in resources.items():
        short = resource.removeprefix(prefix + "_")
        folder = ("data-" + prefix + "-" if group else "") + short.replace("_", "-")
        interfaces, readable = declarations(folder)
        name = next(name for name in interfaces if name.endswith("Config") and name.lower().endswith(camel("_" + short).lower() + "config"))
        for instance, given in instances.items():
            compare(f"{group}{resource}.{instance}", given, name, interfaces)
            attributes[f"{group}{resource}.{instance}"] = readable

for expression in re.findall(r"\$\{([^}]*)\}", json.dumps(configuration)):
    for reference in re.findall(r"(?:data\.)?%s_\w+\.[\w-]+\.\w+" % prefix, expression):
        compared += 1
        resource, attribute = reference.rsplit(".", 1)
        if camel(attribute) not in attributes.get(resource, ()):
            wrong.append(f"{reference}: there is no such thing")

print("\n".join(wrong) or f"{compared} arguments and references are as the provider has them")
sys.exit(bool(wrong))
