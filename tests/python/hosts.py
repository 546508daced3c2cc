"""Several hosts on one machine: network namespaces joined by bridges, each with a name and addresses of its own.

    with Hosts(2) as hosts:
        run_ranks(function, 4, hosts=hosts)              # ranks 0 and 1 on host 0, 2 and 3 on host 1
        run_ranks(function, 3, hosts=hosts, layout=[0, 1, 0])
        hosts[1].run(["ping", "-c1", hosts[0].address()])
        hosts[0].drop(port=5000)

Processes there have a loopback interface, abstract sockets, ports and firewall rules of their own, as in containers; the
boot id, the memory and the processors are the machine's. Needs root and `ip`; tests take it from the fixture `make_hosts`, which
skips where that is missing.
"""

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
import subprocess

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x0002_0000, 0x0400_0000, 0x4000_0000
_MS_REC, _MS_SLAVE = 0x4000, 0x8_0000
_PREFIX = "hcl"
_counter = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """Why no hosts can be made here, or nothing."""
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    if shutil.which("ip") is None:
        return "making network namespaces takes ip (iproute2)"
    name = f"{_PREFIX}{os.getpid()}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"network namespaces are refused here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


class Host:
    """One namespace. Its interfaces are eth0, eth1, ...: one for each bridge."""

    def __init__(self, name, number, rails, ipv4, ipv6):
        self.name = name  # of the namespace
        self.number = number
        self.hostname = f"host{number}"  # resolves nowhere
        self._rails, self._ipv4, self._ipv6 = rails, ipv4, ipv6

    def address(self, rail=0, ipv6=None):
        ipv6 = not self._ipv4 if ipv6 is None else ipv6
        return f"fd77:{rail}::{self.number + 1}" if ipv6 else f"10.77.{rail}.{self.number + 1}"

    def command(self, command):
        """`command`, a list, to be started here by any means."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def run(self, command, **how):
        how = {"check": True, "capture_output": True, "text": True, **how}
        done = subprocess.run(self.command(command), **{**how, "check": False})
        if how["check"] and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} on {self.name}: {done.stderr.strip() or done.returncode}")
        return done

    def popen(self, command, **how):
        return subprocess.Popen(self.command(command), **how)

    def enter(self):
        """Moves the calling process, which has one thread, to this host for good."""
        self._join()
        _check(_libc.unshare(_CLONE_NEWUTS), "unshare the host name")
        socket.sethostname(self.hostname)
        # /sys shows the interfaces of the namespace in which it was mounted.
        _check(_libc.unshare(_CLONE_NEWNS), "unshare the mounts")
        _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None), "keep mounts private")
        _libc.umount2(b"/sys", 2)
        _libc.mount(self.name.encode(), b"/sys", b"sysfs", 0, None)

    def listen(self, port=0):
        """A listening socket of this host, in the calling process, which stays where it is."""
        family = socket.AF_INET if self._ipv4 else socket.AF_INET6
        with open("/proc/thread-self/ns/net") as home:
            self._join()
            try:
                return socket.create_server((self.address(), port), family=family, backlog=64)
            finally:
                _check(_libc.setns(home.fileno(), _CLONE_NEWNET), "return")

    def counters(self, rail=0):
        """Bytes and packets that this host has received and sent over the rail, as its interface counts them."""
        fields = self.run(["cat", "/proc/net/dev"]).stdout.partition(f"eth{rail}:")[2].split()
        return {"rx_bytes": int(fields[0]), "rx_packets": int(fields[1]), "tx_bytes": int(fields[8]), "tx_packets": int(fields[9])}

    def drop(self, port=None, rail=None, to=None):
        """From now on packets that come in here are lost without a word: those to a TCP port (or "4000-4100"), those of one
        rail, or all. `to` drops what goes out to that address instead. Needs nft (nftables)."""
        rule = [f"iifname eth{rail}"] if rail is not None else []
        rule += [f"tcp dport {port}"] if port is not None else []
        rule += [f"{'ip6' if ':' in to else 'ip'} daddr {to}"] if to is not None else []
        chain = "lost_out" if to is not None else "lost_in"
        self.run(["nft", "add", "table", "inet", _PREFIX])
        hook = "output" if to is not None else "input"
        self.run(["nft", f"add chain inet {_PREFIX} {chain} {{ type filter hook {hook} priority 0 ; }}"])
        self.run(["nft", f"add rule inet {_PREFIX} {chain} {' '.join(rule)} drop"])

    def heal(self):
        """Nothing is dropped any more."""
        self.run(["nft", "delete", "table", "inet", _PREFIX], check=False)

    def _join(self):
        with open(f"/run/netns/{self.name}") as there:
            _check(_libc.setns(there.fileno(), _CLONE_NEWNET), f"enter {self.name}")


class Hosts:
    """`count` hosts that reach each other over `rails` separate networks. A list of Host; a context manager.

    `mtu`: of every interface. `ipv4`, `ipv6`: which addresses they have (link-local ones of IPv6 are always there). Everything
    goes away with close(); what a killed process left behind is removed by the next one that makes hosts.
    """

    def __init__(self, count, rails=1, mtu=None, ipv4=True, ipv6=False):
        _remove_stale()
        stem = f"{_PREFIX}{os.getpid()}x{next(_counter)}"
        self._switch = f"{stem}sw"  # holds the bridges
        self._hosts = [Host(f"{stem}n{number}", number, rails, ipv4, ipv6) for number in range(count)]
        try:
            self._make(rails, mtu)
        except BaseException:
            self.close()
            raise

    def _make(self, rails, mtu):
        size = f"mtu {mtu}" if mtu else ""
        for name in [self._switch, *(host.name for host in self._hosts)]:
            _ip(f"netns add {name}")
        _batch(self._switch, [f"link add br{rail} {size} type bridge" for rail in range(rails)]
               + [f"link set br{rail} up" for rail in range(rails)])
        for host in self._hosts:
            lines = ["link set lo up"]
            for rail in range(rails):
                port = f"h{host.number}r{rail}"
                _batch(self._switch, [f"link add {port} {size} type veth peer name eth{rail} {size} netns {host.name}",
                                      f"link set {port} master br{rail} up"])
                # Without nodad an address of IPv6 takes seconds before it can be used.
                lines += [f"addr add {host.address(rail, ipv6=False)}/24 dev eth{rail}"] if host._ipv4 else []
                lines += [f"addr add {host.address(rail, ipv6=True)}/64 dev eth{rail} nodad"] if host._ipv6 else []
                lines += [f"link set eth{rail} up"]
            _batch(host.name, lines)

    def __getitem__(self, index):
        return self._hosts[index]

    def __len__(self):
        return len(self._hosts)

    def __iter__(self):
        return iter(self._hosts)

    def cable(self, number, state, rail=0):
        """Pulls the host's cable out at the switch ("down"), or puts it in again ("up")."""
        _ip(f"-n {self._switch} link set h{number}r{rail} {state}")

    def close(self):
        for name in [*(host.name for host in self._hosts), self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def place(hosts, size, layout=None):
    """The host of each of `size` ranks: by `layout`, host numbers, or evenly, neighbours together."""
    if layout is None:
        each = -(-size // len(hosts))
        layout = [rank // each for rank in range(size)]
    return [hosts[number] for number in layout]


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")


def _ip(arguments):
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)


def _batch(namespace, lines):
    subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)


def _remove_stale():
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/run/netns"):
            maker = re.fullmatch(rf"{_PREFIX}(\d+)(try|x\d+(sw|n\d+))", name)
            if maker and not os.path.exists(f"/proc/{maker[1]}"):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)
