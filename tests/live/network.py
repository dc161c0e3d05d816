"""Network namespaces with slowed links, one for each rank. They need root and Linux's ip and tc."""

import os
import shutil
import subprocess

PREFIX = "stepsim"  # Every namespace made here begins with it.
DEVICE = "eth0"
BURST_BYTES = 65536  # This much may leave at full speed: one segment that TCP hands down.


def missing():
    """Returns why namespaces cannot be made here, or None when they can."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian: iproute2)"
    return None


class Network:
    """A context manager that joins `ranks` namespaces by a switch and removes them afterwards. Each
    sends at most `bits_per_second` (None: as fast as it can)."""

    def __init__(self, ranks, bits_per_second=None, name=None):
        self.name = f"{PREFIX}{name or os.getpid()}"
        self.ranks = ranks
        self.rate = bits_per_second

    def namespace(self, rank):
        return f"{self.name}-{rank}"

    @property
    def hub(self):
        """The namespace of the switch."""
        return f"{self.name}-hub"

    def address(self, rank):
        return f"10.213.0.{rank + 1}"

    def inside(self, rank, command):
        """Returns the command that runs `command` on a rank."""
        return ["ip", "netns", "exec", self.namespace(rank), *command]

    def environment(self):
        """Returns the environment variables that torch.distributed needs in the namespaces."""
        return {"MASTER_ADDR": self.address(0), "GLOO_SOCKET_IFNAME": DEVICE}

    def commands(self):
        """Yields the commands that set the network up."""
        yield ["ip", "netns", "add", self.hub]
        yield self.ip_in(self.hub, "link", "add", "switch", "type", "bridge")
        yield self.ip_in(self.hub, "link", "set", "switch", "up")
        for rank in range(self.ranks):
            yield from self.rank_commands(rank)

    def rank_commands(self, rank):
        port, space = f"port{rank}", self.namespace(rank)
        yield ["ip", "netns", "add", space]
        yield self.ip_in(
            self.hub, "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", space
        )
        yield self.ip_in(self.hub, "link", "set", port, "master", "switch", "up")
        yield self.ip_in(space, "link", "set", "lo", "up")
        yield self.ip_in(space, "address", "add", f"{self.address(rank)}/24", "dev", DEVICE)
        yield self.ip_in(space, "link", "set", DEVICE, "up")
        if self.rate is not None:
            limit = ["rate", f"{round(self.rate)}bit", "burst", str(BURST_BYTES)]
            qdisc = ["qdisc", "add", "dev", DEVICE, "root", "tbf", *limit, "latency", "200ms"]
            yield ["tc", "-n", space, *qdisc]

    @staticmethod
    def ip_in(space, *words):
        return ["ip", "-n", space, *words]

    def remove_commands(self):
        """Yields the commands that remove the network; links disappear with their namespaces."""
        for space in [*map(self.namespace, range(self.ranks)), self.hub]:
            yield ["ip", "netns", "delete", space]

    def __enter__(self):
        try:
            for command in self.commands():
                subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            self.remove()
            raise RuntimeError(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        for command in self.remove_commands():
            subprocess.run(command, check=False, capture_output=True)


class Loopback:
    """Stands in for Network without namespaces: all ranks are on 127.0.0.1."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.rate = None

    def inside(self, _, command):
        return command

    def environment(self):
        return {"MASTER_ADDR": "127.0.0.1"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
