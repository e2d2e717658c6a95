-- Finds the store or makes it. KEYS[1] is <prefix>:store; id to use for a new store ("": none is made, the answer is empty), deployment, schema, stream of requests,
-- its group, boot id of the machine, the other streams. Answers id, deployment, schema, the machine's mark, and the common beginning's numbers.
local store = KEYS[1]
local P = string.sub(store, 1, -7)
local at = redis.call('TIME')
local micros = at[1] .. string.format('%06d', at[2])

-- What the user may not do must show now: a script that is refused half-way is not undone.
local probe = P .. ':probe'
local commands = {
	{ 'HSET', probe, 'a', '1' }, { 'HGET', probe, 'a' }, { 'HMGET', probe, 'a' }, { 'HINCRBY', probe, 'a', '1' },
	{ 'HLEN', probe }, { 'HDEL', probe, 'a' }, { 'EXPIRE', probe, '1' },
	{ 'DEL', probe }, { 'ZADD', probe, '0', 'a' }, { 'ZRANGE', probe, '0', '-1' }, { 'ZCARD', probe },
	{ 'ZRANGEBYLEX', probe, '-', '+' }, { 'ZREVRANGEBYLEX', probe, '+', '-' }, { 'ZRANGEBYSCORE', probe, '0', '1' },
	{ 'ZREM', probe, 'a' }, { 'EXISTS', probe }, { 'PING' }, { 'PUBLISH', P .. ':notices', '' },
}
for i = 4, #ARGV do
	if i ~= 5 and i ~= 6 then
		local stream = ARGV[i]
		for _, command in ipairs({ { 'XADD', stream, '0-0', 'a', 'b' }, { 'XRANGE', stream, '-', '+', 'COUNT', '1' },
			{ 'XDEL', stream, '0-1' }, { 'XACK', stream, ARGV[5], '0-1' }, { 'XINFO', 'STREAM', stream },
			{ 'XINFO', 'GROUPS', stream }, { 'XPENDING', stream, ARGV[5] } }) do
			commands[#commands + 1] = command
		end
	end
end
for _, command in ipairs(commands) do
	local done = redis.pcall(unpack(command))
	local why = type(done) == 'table' and done.err
	if why and (string.find(why, 'ACL', 1, true) or string.find(why, 'NOPERM', 1, true) or string.find(why, "can't", 1, true)) then
		return redis.error_reply('NOPERM ' .. command[1] .. ': ' .. why)
	end
end

if ARGV[1] == '' and redis.call('EXISTS', store) == 0 then
	return {}
end
if redis.call('EXISTS', store) == 0 then
	-- Numbers and revisions begin at the time: no earlier store of these names has given out any of them.
	redis.call('HSET', store, 'id', ARGV[1], 'deployment', ARGV[2], 'schema', ARGV[3], 'next', micros, 'rev', micros,
		'offset', '0', 'quiet', '0', 'last', '0')
end
local made = redis.pcall('XGROUP', 'CREATE', ARGV[4], ARGV[5], '0', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
	return redis.error_reply(made.err)
end
local own = redis.call('HMGET', store, 'id', 'deployment', 'schema', 'offset', 'quiet', 'rev', 'last', 'moves')
return { own[1], own[2], own[3], redis.call('HGET', P .. ':boots', ARGV[6]), micros, own[4], own[5], own[6], own[7],
	own[8] or '0' }
