"""Messages from one process to another, beside ucx_perftest and memcpy."""
import ctypes
import json
import secrets
import shutil
import subprocess
import time

from comparison.builds import has_ucx
from comparison.figures import Figures, figures_of
from comparison.processes import Failure, last_line, run
from comparison.tables import Contestant, Table

LARGE, SMALL = "25 MB, one way", "8 B, there and back"
LARGE_BYTES = 25_000_000


class Perftest:
    """ucx_perftest: a process that receives and one that sends."""

    def __init__(self, options, tls):
        self.tls = tls
        self.iterations = {"ucp_am_lat": 2000 if options.quick else 100_000,
                           "ucp_am_bw": 10 if options.quick else 100}

    def fields(self, test, size, percentile):
        """Of its last line: messages, the percentile of their times in us, the mean, the mean of all."""
        port = str(30000 + secrets.randbelow(2000))
        count = str(self.iterations[test])
        command = ["env", f"UCX_TLS={self.tls}", "ucx_perftest", "-p", port, "-t", test, "-s",
                   str(size), "-n", count, "-w", str(max(2, int(count) // 10)), "-R",
                   str(percentile), "-f", "-v"]
        receiver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.3)  # it has no sign that it listens
            output = run(command[:2] + ["ucx_perftest", "127.0.0.1"] + command[3:], timeout=60)
        finally:
            receiver.kill()
            receiver.wait()
        try:
            return [float(field) for field in last_line(output).split(",")[:4]]
        except ValueError:
            raise Failure(f"ucx_perftest prints '{last_line(output)}': expected numbers")

    def large(self):
        # Its percentiles are those of handing over a message: the time of a run has the transfers.
        return figures_of([self.fields("ucp_am_bw", LARGE_BYTES, 50)[3] / 1e6 for _ in range(3)])

    def small(self):
        of = {p: self.fields("ucp_am_lat", 8, p) for p in (10, 50, 99)}  # one way
        return Figures(median=2e-6 * of[50][1], p10=2e-6 * of[10][1], p99=2e-6 * of[99][1],
                       mean=2e-6 * of[50][2])

    def run(self):
        return {LARGE: self.large(), SMALL: self.small()}


def ours(options, transport):
    def measure():
        output = run([options.program, "bench", "p2p", "--transport", transport, "--bytes",
                      f"8,{LARGE_BYTES}", "--iterations", "5" if options.quick else "50",
                      "--json"])
        cases = {}
        for case, line in zip((SMALL, LARGE), map(json.loads, output.splitlines())):
            cases[case] = Figures(line["median_s"], line["p10_s"], line["p99_s"],
                                  line["median_s"])
        return {LARGE: cases[LARGE], SMALL: cases[SMALL]}
    return measure


def memcpy_case():
    source = ctypes.create_string_buffer(b"\1" * LARGE_BYTES, LARGE_BYTES)
    target = ctypes.create_string_buffer(LARGE_BYTES)
    seconds = []
    for _ in range(21):
        begin = time.perf_counter()
        ctypes.memmove(target, source, LARGE_BYTES)
        seconds.append(time.perf_counter() - begin)
    return {LARGE: figures_of(seconds[1:])}


def tables(options, stack):
    del stack
    contestants, pairs = [], [("memcpy", "shm"), ("memcpy", "ucx"), ("memcpy", "tcp")]
    contestants = [Contestant("memcpy", memcpy_case)]
    if shutil.which("ucx_perftest"):
        for name, tls in (("ucx_perftest", "posix,cma"), ("ucx_perftest, tcp", "tcp")):
            contestants.append(Contestant(name, Perftest(options, tls).run))
        pairs += [("ucx_perftest", "shm"), ("ucx_perftest", "ucx"), ("ucx_perftest, tcp", "tcp")]
    else:
        options.absent("ucx_perftest is not here (scripts/setup --peers installs it)")
    transports = ["shm", "ucx", "tcp"] if has_ucx(options) else ["shm", "tcp"]
    pairs = [pair for pair in pairs if pair[1] in transports]
    contestants += [Contestant(t, ours(options, t)) for t in transports]
    return [Table("wires", "One message between two processes of one host", contestants, pairs,
                  [f"grapevine bench p2p --transport shm|ucx|tcp --bytes 8,{LARGE_BYTES} "
                   "--iterations 50 --json",
                   "UCX_TLS=posix,cma|tcp ucx_perftest -t ucp_am_bw -s 25000000 -n 100",
                   "UCX_TLS=posix,cma|tcp ucx_perftest -t ucp_am_lat -s 8 -n 100000   (twice its "
                   "time, which is that of one way)"], unit="us")]
