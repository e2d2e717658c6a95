# SPDX-License-Identifier: Apache-2.0
# Flags shared by every target of the project.
add_library(berth_flags INTERFACE)
target_compile_definitions(berth_flags INTERFACE _GNU_SOURCE BERTH_VERSION="${PROJECT_VERSION}")
target_compile_options(berth_flags INTERFACE
	-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual -Wwrite-strings -Wvla
	-Wformat=2 -Wundef -Wno-missing-field-initializers -fno-common -fstack-protector-strong)
if(BERTH_WERROR)
	target_compile_options(berth_flags INTERFACE -Werror)
endif()
if(BERTH_SANITIZE)
	target_compile_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE} -fno-omit-frame-pointer)
	target_link_options(berth_flags INTERFACE -fsanitize=${BERTH_SANITIZE})
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
	target_compile_options(berth_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
if(BERTH_FUZZ)
	target_compile_options(berth_flags INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined)
endif()
target_link_options(berth_flags INTERFACE -Wl,-z,relro,-z,now)

set(BERTH_BIN_DIR ${CMAKE_BINARY_DIR}/bin)
set(BERTH_PLUGIN_DIR ${CMAKE_BINARY_DIR}/lib/berth/plugins)
