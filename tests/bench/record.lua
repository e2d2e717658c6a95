-- SPDX-License-Identifier: Apache-2.0
-- GETs that cycle over the executions of a file: wrk … -- TOKEN FILE
local requests, at = {}, 0
local threads = 0

function setup(thread)
	thread:set("number", threads)
	threads = threads + 1
end

function init(args)
	wrk.headers["Authorization"] = "Bearer " .. args[1]
	for id in io.lines(args[2]) do
		requests[#requests + 1] = wrk.format("GET", "/sandbox/executions/" .. id)
	end
	at = number * math.floor(#requests / 2)
end

function request()
	at = at % #requests + 1
	return requests[at]
end
