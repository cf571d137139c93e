"""Hosts with slow links between them: network namespaces, joined by a bridge. Needs root, iproute2."""
import itertools
import os
import shutil
import subprocess


def call(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def why_no_links():
    """A line that says what is missing here, or None."""
    if os.geteuid() != 0:
        return "links of a given rate need root (network namespaces)"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"links of a given rate need '{program}' (package iproute2)"
    name = f"gt{os.getpid()}t"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "links of a given rate need network namespaces, which are not allowed here"
    limited = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", *tbf(1000)],
                             capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None if limited else "links of a given rate need the kernel module sch_tbf"


def tbf(mbit):
    return ["root", "tbf", "rate", f"{mbit}mbit", "burst", "64kbit", "latency", "2s"]


class Links:
    """A namespace for each rank, whose senders are limited by tc, and a bridge between them."""
    made = itertools.count()

    def __init__(self, ranks):
        self.ranks = ranks
        self.prefix = f"gt{os.getpid()}x{next(Links.made)}x"  # several may exist at once
        self.bridge = self.prefix + "b"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        call("ip", "netns", "add", self.bridge)
        call("ip", "-n", self.bridge, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", self.bridge, "link", "set", "br0", "up")
        for rank in range(self.ranks):
            space = self.space(rank)
            call("ip", "netns", "add", space)
            call("ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", "name",
                 f"port{rank}", "netns", self.bridge)
            call("ip", "-n", self.bridge, "link", "set", f"port{rank}", "master", "br0", "up")
            call("ip", "-n", space, "link", "set", "lo", "up")
            call("ip", "-n", space, "addr", "add", f"{self.address(rank)}/24", "dev", "eth0")
            call("ip", "-n", space, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for rank in range(self.ranks):
            subprocess.run(["ip", "netns", "del", self.space(rank)], check=False,
                           capture_output=True)
        subprocess.run(["ip", "netns", "del", self.bridge], check=False, capture_output=True)

    def space(self, rank):
        return f"{self.prefix}{rank}"

    def address(self, rank):
        return f"10.79.0.{rank + 1}"

    def inside(self, rank):
        """Words before a command that runs as the host of this rank."""
        return ["ip", "netns", "exec", self.space(rank)]

    def limit(self, mbit):
        for rank in range(self.ranks):
            call("tc", "-n", self.space(rank), "qdisc", "replace", "dev", "eth0", *tbf(mbit))
