-- Finds the store or makes it. KEYS[1] is the prefix; id to use for a new store, deployment, schema, stream of requests,
-- its group, boot id of the machine. Answers id, deployment, schema, the machine's mark, and the common beginning's numbers.
local P = KEYS[1]
local store = P .. ':store'
local at = redis.call('TIME')
local micros = at[1] .. string.format('%06d', at[2])
if redis.call('EXISTS', store) == 0 then
	redis.call('HSET', store, 'id', ARGV[1], 'deployment', ARGV[2], 'schema', ARGV[3], 'next', micros, 'rev', '0',
		'offset', '0', 'quiet', '0', 'last', '0')
end
local made = redis.pcall('XGROUP', 'CREATE', ARGV[4], ARGV[5], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
	return redis.error_reply(made.err)
end
local own = redis.call('HMGET', store, 'id', 'deployment', 'schema', 'offset', 'quiet', 'rev', 'last')
return { own[1], own[2], own[3], redis.call('GET', P .. ':boot:' .. ARGV[6]), micros, own[4], own[5], own[6], own[7] }
