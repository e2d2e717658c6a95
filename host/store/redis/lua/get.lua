-- Rows: table, key, … Answers the stored text of each, nil for none.
local out = answer('OK')
for i = 2, #ARGV, 2 do
	out[#out + 1] = redis.call('HGET', P .. ':' .. ARGV[i], ARGV[i + 1])
end
return out
