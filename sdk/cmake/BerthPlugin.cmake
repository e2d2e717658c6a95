# SPDX-License-Identifier: Apache-2.0
# berth_add_plugin(<name> <sources…>): one provider plugin, <name>.so, exporting only its entry.
# Inside Berth's tree: it takes the tree's flags, library and folder of plugins.
function(berth_add_plugin name)
	if(NOT TARGET berth_flags OR NOT TARGET berth_sdk_headers)
		message(FATAL_ERROR "berth_add_plugin(${name}) works inside Berth's own tree only. Outside, one command of the compiler "
			"builds a plugin: docs/writing-a-provider.md, \"From an empty folder\".")
	endif()
	add_library(plugin_${name} MODULE ${ARGN})
	target_link_libraries(plugin_${name} PRIVATE berth_flags berth_sdk_headers)
	if(TARGET berth_sdk)
		target_link_libraries(plugin_${name} PRIVATE berth_sdk)
	endif()
	target_compile_options(plugin_${name} PRIVATE -fvisibility=hidden)
	target_link_options(plugin_${name} PRIVATE -Wl,--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map
		-Wl,-z,nodelete)
	if(NOT BERTH_SANITIZE)
		target_link_options(plugin_${name} PRIVATE -Wl,-z,defs)
	endif()
	set_target_properties(plugin_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
		LIBRARY_OUTPUT_DIRECTORY ${BERTH_PLUGIN_DIR})
endfunction()
