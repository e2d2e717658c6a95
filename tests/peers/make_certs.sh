#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Certificates for tests, into the folder given: ca.pem; server.pem (localhost, 127.0.0.1), wrong.pem (another name), client.pem
# (each certificate and key in one file); other-ca.pem, which signed nothing.
set -eu
cd "$1"
authority() { # file, name
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$2" -keyout "$1.key" -out "$1.pem" 2>/dev/null
}
leaf() { # file, name, extension
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
	printf '%s\n' "$3" >"$1.ext"
	openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
	cat "$1.crt" "$1.key" >"$1.pem"
}
authority ca "Test CA"
authority other-ca "Another CA"
leaf server localhost "subjectAltName=DNS:localhost,DNS:inner.test,IP:127.0.0.1"
leaf wrong other.test "subjectAltName=DNS:other.test"
leaf client client "extendedKeyUsage=clientAuth"
