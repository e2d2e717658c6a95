-- SPDX-License-Identifier: Apache-2.0
-- Executions, each waited for, over tasks in turn: wrk … -- TOKEN TASKS PREFIX COMMAND. Prints how many did not complete.
local requests, at = {}, 0
local threads = {}
bad = 0

function setup(thread)
	thread:set("number", #threads)
	threads[#threads + 1] = thread
end

function init(args)
	wrk.headers["Authorization"] = "Bearer " .. args[1]
	wrk.headers["Content-Type"] = "application/json"
	for i = 1, tonumber(args[2]) do
		requests[i] = wrk.format("POST", "/sandbox/executions?wait=30s", nil, string.format(
			'{"workspace_id":"bench","task_id":"%s%d","command":{"command_body":"%s"}}', args[3], i, args[4]))
	end
	at = number * math.floor(#requests / 2)
end

function request()
	at = at % #requests + 1
	return requests[at]
end

function response(status, headers, body)
	if status ~= 200 or not body:find('"status":"completed"', 1, true) then
		bad = bad + 1
	end
end

function done(summary, latency, request_latency)
	local sum = 0
	for _, thread in ipairs(threads) do
		sum = sum + thread:get("bad")
	end
	print("not completed: " .. sum)
end
