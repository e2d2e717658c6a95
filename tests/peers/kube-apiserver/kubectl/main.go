// SPDX-License-Identifier: Apache-2.0

// kubectl of the same version as the API server, so that tests judge both the real server and the scripted fake with the official
// client.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
