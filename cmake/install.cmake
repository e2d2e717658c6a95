# SPDX-License-Identifier: Apache-2.0
# What `cmake --install BUILD --prefix /usr` puts where berthd, its unit and berthctl look for it by default. Configuration, the
# user `berth` and tokens are the operator's (docs/operating.md, "Installing"). The SDK is not installed yet.
install(TARGETS berthd berthctl berth-conformance RUNTIME DESTINATION bin)
install(TARGETS berth-supervise berth-executor RUNTIME DESTINATION lib/berth/helpers)
install(TARGETS plugin_mock plugin_kubernetes LIBRARY DESTINATION lib/berth/plugins)
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION share)
install(FILES packaging/systemd/berthd.service DESTINATION lib/systemd/system)
install(FILES etc/berth.conf DESTINATION share/doc/berth/examples)
install(FILES etc/providers.d/10-mock.conf DESTINATION share/doc/berth/examples/providers.d)
