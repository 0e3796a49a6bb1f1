"""Workers answer one JSON line a command line, so that two programs can take turns in one run."""

import json
import resource
import sys
import time


def timed(work):
    """Seconds of wall and processor time of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def peak_mib():
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(commands):
    """Runs commands {name: function of the other words} from stdin until it ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(commands[name](*words)), flush=True)
