# SPDX-License-Identifier: Apache-2.0
"""The fake by itself: python3 tests/peers/kube_fake --executor PATH [--port N]. Prints one line and serves until it is ended."""

import argparse
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from kube_fake import Kube  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--executor", required=True, help="path of berth-executor")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    kube = Kube(args.executor, port=args.port).start()
    print(f"serves {kube.url} kubeconfig {kube.kubeconfig()} key {kube.signing_key()} template {kube.template()}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    kube.close()


if __name__ == "__main__":
    main()
