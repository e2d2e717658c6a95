# SPDX-License-Identifier: Apache-2.0
# Run by the build: writes OUT, a C file with the Lua files of the folder DIR as byte arrays redis_lua_<name>.
file(GLOB files ${DIR}/*.lua)
set(text "/* Made from host/store/redis/lua by embed.cmake. */\n#include \"store/redis/scripts.h\"\n\n")
foreach(file ${files})
	get_filename_component(name ${file} NAME_WE)
	file(READ ${file} bytes HEX)
	string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
	string(APPEND text "const char redis_lua_${name}[] = {${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
