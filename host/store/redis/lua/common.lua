-- SPDX-License-Identifier: Apache-2.0
-- The beginning of every script. KEYS[1] is the store's own key, <prefix>:store, ARGV[1] the id of the store that the caller knows.
-- Every answer begins with: a word, Redis' time in microseconds, offset and quiet of the clock, the last revision, how often the
-- offset was moved.
-- Numbers are doubles here: what may pass 2^53 stays text.
local P, ID = string.sub(KEYS[1], 1, -7), ARGV[1]
local at = redis.call('TIME')
local own = redis.call('HMGET', P .. ':store', 'id', 'offset', 'quiet', 'rev', 'moves')
own[2], own[3], own[5] = own[2] or '0', own[3] or '0', own[5] or '0'

local function text(number)
	return string.format('%.0f', number)
end

local function answer(word, rev)
	return { word, at[1] .. string.sub('000000', #at[2] + 1) .. at[2], own[2], own[3], rev or own[4] or '0', own[5] }
end

-- Milliseconds on the store's clock.
local function now()
	return tonumber(at[1]) * 1000 + math.floor(tonumber(at[2]) / 1000) + tonumber(own[2])
end

-- A stored row: "<rev> <due> <bytes of group> <group><doc>".
local function split(row)
	local rev, due, len, from = string.match(row, '^(%d+) (%d+) (%d+) ()')
	return rev, due, string.sub(row, from, from + len - 1)
end

-- An entry's id and its place in the index of its subject, which sorts as the ids do. Numbers stay text here: printing doubles
-- was a twenty-fifth of what Redis did for a step.
local function id_parts(id)
	local ms, n = string.match(id, '^(%d+)-(%d+)$')
	return tonumber(ms), tonumber(n)
end

local function member_of(id)
	local ms, n = string.match(id, '^(%d+)-(%d+)$')
	return string.sub('000000000000000', #ms + 1) .. ms .. '-' .. string.sub('0000000', #n + 1) .. n
end

local function field_of(fields, name)
	for i = 1, #fields, 2 do
		if fields[i] == name then
			return fields[i + 1]
		end
	end
	return false
end

-- The subject that an entry was appended under: a field of its own, or what its document says.
local function subject_of(fields)
	local subject = field_of(fields, 'subject')
	if subject then
		return subject
	end
	local good, doc = pcall(cjson.decode, field_of(fields, 'event') or '')
	return good and type(doc) == 'table' and type(doc.subject) == 'string' and doc.subject or ''
end

local function is_before(ms, n, other_ms, other_n)
	return ms < other_ms or (ms == other_ms and n < other_n)
end

-- The first id that some group of the stream still needs, as two numbers; nil when there is no group. A group that was set back
-- is given again what comes before its pending entries.
local function needed_from(stream)
	local groups = redis.pcall('XINFO', 'GROUPS', stream)
	local least_ms, least_n
	if groups.err then
		return nil
	end
	for _, group in ipairs(groups) do
		local ms, n = id_parts(field_of(group, 'last-delivered-id'))
		n = n + 1
		if not least_ms or is_before(ms, n, least_ms, least_n) then
			least_ms, least_n = ms, n
		end
		if field_of(group, 'pending') > 0 then
			ms, n = id_parts(redis.call('XPENDING', stream, field_of(group, 'name'))[2])
			if is_before(ms, n, least_ms, least_n) then
				least_ms, least_n = ms, n
			end
		end
	end
	return least_ms, least_n
end

local function is_needed(id, least_ms, least_n)
	local ms, n = id_parts(id)
	return least_ms ~= nil and not is_before(ms, n, least_ms, least_n)
end

if own[1] ~= ID then
	return answer('LOST')
end
