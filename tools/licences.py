#!/usr/bin/env python3
"""Prints the licences of all crates that are part of the binary, with their texts.

licences.py TARGET      the target triple, such as x86_64-unknown-linux-gnu
"""

import json
import pathlib
import subprocess
import sys


def linked(metadata):
    """The packages that the root package links, itself included: neither for tests nor for build scripts."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, new = set(), [metadata["resolve"]["root"]]
    while new:
        package = new.pop()
        if package not in found:
            found.add(package)
            for dependency in nodes[package]["deps"]:
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    new.append(dependency["pkg"])
    return found


def main():
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", sys.argv[1]]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    wanted = linked(metadata)
    packages = [package for package in metadata["packages"] if package["id"] in wanted and package["source"]]
    texts = {}
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or package['license_file']}")
        folder = pathlib.Path(package["manifest_path"]).parent
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "UNLICENSE")):
                texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
    for text, names in texts.items():
        print(f"\n{'-' * 72}\n{', '.join(dict.fromkeys(names))}\n\n{text}")


main()
