-- A host disagrees with the store's clock: how often it had been moved when the host judged it, the offset that would be right by
-- the host's own clock, for how long nobody reclaims, "1" when the host had agreed with it since it was moved last, what two clocks
-- that say the same may differ by. Answers OK (somebody moved it meanwhile: judge again), MOVED, or TAKE: the host is the wrong one.
-- Either Redis' clock jumped or the host's did; one host cannot tell, two can. Who agreed until now moves the offset: a dispute. Of
-- a jump of Redis all hosts say the same, and it is over. Who stands by the offset as it was before is a second witness for it,
-- beside Redis' clock: it is put back, and settled. Of other opinions the one that is furthest behind is taken: it expires nothing
-- early. So a dispute ends: nobody moves the offset up in it, but for its first move and for the last one.
if own[5] ~= ARGV[2] then
	return answer('OK')
end
local key, hold, at_ms = P .. ':store', tonumber(ARGV[4]), now() - tonumber(own[2])
local was = redis.call('HMGET', key, 'from', 'calm', 'settled', 'since', 'last')
local from, calm, settled, age = was[1], was[2], false, at_ms - tonumber(was[4] or '0')
-- A host that was away for longer than that is no witness of what was before.
if ARGV[5] == '1' or not from or age < 0 or age > math.max(hold, 60000) then
	from, calm = own[2], own[3]
elseif was[3] == '1' then
	return answer('TAKE')
else
	settled = math.abs(tonumber(ARGV[3]) - tonumber(from)) <= tonumber(ARGV[6])
	if not settled and tonumber(ARGV[3]) > tonumber(own[2]) then
		return answer('TAKE')
	end
end
own[2] = settled and from or ARGV[3]
-- Settled is: nothing has happened but to a host that now knows it.
own[3] = settled and calm or text(now() + hold)
own[5] = text(redis.call('HINCRBY', key, 'moves', '1'))
redis.call('HSET', key, 'offset', own[2], 'quiet', own[3], 'from', from, 'calm', calm, 'settled', settled and '1' or '0',
	'since', text(at_ms))
if settled and tonumber(was[5] or '0') > now() then
	redis.call('HSET', key, 'last', text(now())) -- told by a clock that was ahead
end
return answer('MOVED')
