"""What the program under test was built with."""
import functools
import subprocess


@functools.lru_cache(maxsize=None)
def lacks_ucx(program):
    done = subprocess.run([program, "bench", "p2p", "--transport", "ucx", "--bytes", "8",
                           "--iterations", "1"], capture_output=True, text=True)
    return "UCX is not in this build" in done.stderr


def has_ucx(options):
    """False, and the subject that lacks it is named once, where there is no UCX."""
    if not lacks_ucx(options.program):
        return True
    line = "ucx: this build is without UCX"
    if line not in options.missing:
        options.absent(line)
    return False
