# SPDX-License-Identifier: Apache-2.0
"""A fake Kubernetes: API server and node in one process, for tests of the Kubernetes provider.

It keeps the rules that a client can trip over (resource versions, preconditions, selectors, watches, graceful deletion, pages that
expire), breaks them on demand (faults.py), and plays the node (node.py): a pod gets a real berth-executor process on an address of
127/8, or whatever its script says. claims.py plays the controller of agent-sandbox.

Use `Kube` in a test (it runs on a thread of its own), or `python3 tests/peers/kube_fake` for a server by itself.
"""

from .cluster import Kube  # noqa: F401
