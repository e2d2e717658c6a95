-- A page of a table or of one group of it: table, group ("" = all), after ("" = from the start), "up" or "down", most
-- rows, most bytes. Answers "1" when there is more, the last key looked at, then key and row of each.
local key = P .. ':' .. ARGV[2]
local index = ARGV[3] ~= '' and key .. ':group:' .. ARGV[3] or key .. ':all'
local limit = tonumber(ARGV[6])
local keys
if ARGV[5] == 'up' then
	keys = redis.call('ZRANGEBYLEX', index, ARGV[4] ~= '' and '(' .. ARGV[4] or '-', '+', 'LIMIT', 0, limit)
else
	keys = redis.call('ZREVRANGEBYLEX', index, ARGV[4] ~= '' and '(' .. ARGV[4] or '+', '-', 'LIMIT', 0, limit)
end
local out, bytes = answer('OK'), 0
local first = #out
out[first + 1], out[first + 2] = #keys == limit and '1' or '0', ''
for i, name in ipairs(keys) do
	local row = redis.call('HGET', key, name)
	out[first + 2] = name
	if row then
		out[#out + 1], out[#out + 2] = name, row
		bytes = bytes + #row
	end
	if bytes >= tonumber(ARGV[7]) then
		out[first + 1] = i < #keys and '1' or out[first + 1]
		break
	end
end
return out
