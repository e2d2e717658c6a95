module berth.dev/tests/kube_fast

go 1.19
