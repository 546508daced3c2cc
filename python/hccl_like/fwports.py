"""``hccl-like fwports``: the firewall rules that the hosts of a job need, from the settings in force."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import sys

_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"


def main(argv: list[str] | None = None) -> int:
    """Prints the rules. Returns 0, or 2 if the settings cannot work behind a firewall."""
    parser = argparse.ArgumentParser(
        prog="hccl-like fwports",
        description="Prints commands that let the job's TCP connections in: to the store on the host of rank 0, and to the ranks on every "
        "host. Which ports the ranks listen at is HCCL_LIKE_PORT_RANGE. Run it with the settings of the job; it changes nothing.",
        epilog="example: HCCL_LIKE_PORT_RANGE=40000-40063 hccl-like fwports --ranks 8 --from 10.0.0.0/24")
    parser.add_argument("--ranks", type=int, default=1, help="ranks on each host, each of which takes a port (1)")
    parser.add_argument("--store", type=int, action="append", metavar="PORT",
                        help="port of the store, MASTER_PORT or that of torchrun's --rdzv-endpoint; may be repeated (MASTER_PORT, else 29500)")
    parser.add_argument("--from", dest="sources", action="append", default=[], metavar="NETWORK", type=_network,
                        help="addresses of the job's hosts, as 10.0.0.0/24; may be repeated (any)")
    parser.add_argument("--chain", default="inet filter input", help="nftables' family, table and chain (inet filter input)")
    parser.add_argument("--json", action="store_true", help="one JSON object: ports and rules")
    asked = parser.parse_args(argv)
    if asked.ranks < 1:
        parser.error("--ranks takes 1 or more")
    stores = asked.store or [int(os.environ.get("MASTER_PORT", "29500"))]
    if any(not 0 < port < 1 << 16 for port in stores):
        parser.error("--store takes a port, 1 to 65535")
    settings = _settings()
    first, last = (int(port) for port in settings["HCCL_LIKE_PORT_RANGE"].split("-"))
    chosen = last > 0
    if not chosen:
        with open(_EPHEMERAL) as ports:
            first, last = map(int, ports.read().split())
    if last - first + 1 < asked.ranks:
        print(f"HCCL_LIKE_PORT_RANGE={first}-{last} has {last - first + 1} ports for {asked.ranks} ranks on a host; name one for each",
              file=sys.stderr)
        return 2
    notes = list(_notes(settings["HCCL_LIKE_TRANSPORTS"].split(","), chosen))
    ranges = [(port, port) for port in sorted(set(stores))] + [(first, last)]
    rules = list(_rules(ranges, asked.sources, asked.chain))
    if asked.json:
        print(json.dumps({"store": sorted(set(stores)), "ranks": [first, last], "rules": rules, "notes": notes}))
        return 0
    for note in notes:
        print(f"# {note}")
    print("\n".join(rules))
    return 0


def _settings() -> dict[str, str]:
    from hccl_like import _extension

    return {name: value for name, value, _, _ in _extension.load().settings()}


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write a network as 10.0.0.0/24") from None


def _notes(transports: list[str], chosen: bool):
    if not chosen:
        yield "HCCL_LIKE_PORT_RANGE is not set, so ranks take any free port of the system's. With HCCL_LIKE_PORT_RANGE=40000-40063 on all"
        yield "ranks, say, 64 ports are enough for hosts with up to 64 ranks."
    others = [name for name in transports if name not in ("shm", "tcp")]
    if others:
        yield f"The ports of {', '.join(others)} are not among these: its library or module chooses them."


def _rules(ranges, sources, chain):
    """For nft, then for iptables and ip6tables."""
    nft = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    families = {4: [str(one) for one in sources if one.version == 4], 6: [str(one) for one in sources if one.version == 6]}
    for version, networks in families.items():
        if networks:
            kind = "ip" if version == 4 else "ip6"
            yield f'nft insert rule {chain} {kind} saddr {{ {", ".join(networks)} }} tcp dport {{ {nft} }} accept comment "hccl-like"'
    if not sources:
        yield f'nft insert rule {chain} tcp dport {{ {nft} }} accept comment "hccl-like"'
    ports = ",".join(str(first) if first == last else f"{first}:{last}" for first, last in ranges)
    for version, networks in families.items():
        if sources and not networks:
            continue
        tool = "iptables" if version == 4 else "ip6tables"
        limited = f"-s {','.join(networks)} " if networks else ""
        yield f"{tool} -I INPUT -p tcp {limited}-m multiport --dports {ports} -m comment --comment hccl-like -j ACCEPT"
