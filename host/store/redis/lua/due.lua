-- A page of the rows that are due: table, from ("" = from the start), how many of that due are known already, up to, most
-- rows, most bytes. Answers "1" when there is more, then key and row of each.
local key = P .. ':' .. ARGV[2]
local limit = tonumber(ARGV[6])
local keys = redis.call('ZRANGEBYSCORE', key .. ':due', ARGV[3] ~= '' and ARGV[3] or '(0', ARGV[5], 'LIMIT', ARGV[4], limit)
local out, bytes = answer('OK'), 0
local first = #out
out[first + 1] = #keys == limit and '1' or '0'
for i, name in ipairs(keys) do
	local row = redis.call('HGET', key, name)
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
