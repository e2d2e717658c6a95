-- A page of a stream: stream, its short name, subject ("" = all), first id, first place in the index of the subject, most
-- entries, most bytes. Answers "1" when there is more, the last id looked at, then id, subject (nil: in the document) and
-- document of each.
local stream, limit = ARGV[2], tonumber(ARGV[7])
local out, bytes, ids, entries = answer('OK'), 0, nil, nil
local first = #out
if ARGV[4] == '' then
	entries = redis.call('XRANGE', stream, ARGV[5], '+', 'COUNT', limit)
else
	ids = redis.call('ZRANGEBYLEX', P .. ':of:' .. ARGV[3] .. ':' .. ARGV[4], '[' .. ARGV[6], '+', 'LIMIT', 0, limit)
end
local count = #(ids or entries)
out[first + 1], out[first + 2] = count == limit and '1' or '0', ''
for i = 1, count do
	local entry
	if ids then
		local ms, n = string.match(ids[i], '^0*(%d+)-0*(%d+)$')
		local id = ms .. '-' .. n
		entry = redis.call('XRANGE', stream, id, id)[1]
		out[first + 2] = id
	else
		entry = entries[i]
		out[first + 2] = entry[1]
	end
	if entry then
		local doc = field_of(entry[2], 'event') or ''
		out[#out + 1] = entry[1]
		out[#out + 1] = field_of(entry[2], 'subject')
		out[#out + 1] = doc
		bytes = bytes + #doc
	end
	if bytes >= tonumber(ARGV[8]) then
		out[first + 1] = i < count and '1' or out[first + 1]
		break
	end
end
return out
