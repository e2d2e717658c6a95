-- Applies what a step wrote, if every row it read is still as it was. applier, slot, number, seconds that the slots are kept ("" =
-- go on), group of the requests, then operations, each a letter and its arguments:
--   r table key rev                      a row that was read
--   p table key rev group due rest       a row to write; rev "" = it was not read; rest: what follows rev in the stored text
--   d table key rev                      a row to delete
--   q table key "" group due rest        a row of a key that certainly has none
--   P, D, Q                              the same in a table that has an index of all its rows
--   n name value                         a counter that was read
--   c name delta                         a counter
--   a stream short subject own doc       an entry; own "1": its subject needs a field
--   k stream short id read               an entry is acknowledged; read "1": the step has seen it, so it must be there
--   s stream short subject               all entries of a subject are
--   f stream short subject               nobody looks for the entries of a subject any more
--   t stream short id                    entries up to this one go, but what a group needs
--   w key                                other processes are told that this may have changed
-- Number 0: nothing is written, the reads are checked.
-- All is checked before anything is written: a script that fails half-way is not undone.
-- A slot has the number of the last application through it. A repetition of that number, after the answer was lost, changes nothing.
local slots, number, group = P .. ':applied:' .. ARGV[2], tonumber(ARGV[4]), ARGV[6]
local done = redis.call('HGET', slots, ARGV[3])
if number > 0 and done and tonumber(done) >= number then
	redis.call('HSET', slots, ARGV[3], done) -- something written by this connection, which WAIT then waits for
	return answer('DONE')
end

local width = { r = 4, p = 7, P = 7, q = 7, Q = 7, d = 4, D = 4, n = 3, c = 3, a = 6, k = 5, s = 4, f = 4, t = 4, w = 2 }
local rows, others, deletes, stale = {}, {}, {}, {}

local function is_stale(name, key, value)
	stale[#stale + 1], stale[#stale + 2], stale[#stale + 3] = name, key, value
end

local i = 7
while i <= #ARGV do
	local op = ARGV[i]
	if op == 'c' then
		local sum = tonumber(redis.call('HGET', P .. ':counters', ARGV[i + 1]) or '0') + tonumber(ARGV[i + 2])
		if sum > 9e15 or sum < -9e15 then
			local out = answer('FULL')
			out[#out + 1] = ARGV[i + 1]
			return out
		end
		others[#others + 1] = i
	elseif op == 'q' or op == 'Q' then
		rows[#rows + 1] = { i, op == 'Q', '0', '' }
	elseif op == 'r' or op == 'p' or op == 'P' or op == 'd' or op == 'D' then
		local old = redis.call('HGET', P .. ':' .. ARGV[i + 1], ARGV[i + 2])
		local rev, due, of = '0', '0', ''
		if old then
			rev, due, of = split(old)
		end
		if ARGV[i + 3] ~= '' and ARGV[i + 3] ~= rev then
			is_stale(ARGV[i + 1], ARGV[i + 2], old)
		elseif op == 'p' or op == 'P' then
			rows[#rows + 1] = { i, op == 'P' and not old, due, of }
		elseif old and op ~= 'r' then
			deletes[#deletes + 1] = { i, op == 'D', due, of }
		end
	elseif op == 'n' then
		local value = redis.call('HGET', P .. ':counters', ARGV[i + 1])
		if (value or '0') ~= ARGV[i + 2] then
			is_stale('counters', ARGV[i + 1], value)
		end
	else
		if op == 'k' and ARGV[i + 4] == '1' and #redis.call('XRANGE', ARGV[i + 1], ARGV[i + 3], ARGV[i + 3]) == 0 then
			is_stale('', '', false)
		end
		others[#others + 1] = i
	end
	i = i + width[op]
end
if #stale > 0 then
	local out = answer('STALE')
	for j = 1, #stale do
		out[#out + 1] = stale[j]
	end
	return out
end
if number == 0 then
	return answer('OK')
end

-- Deletions first: they are what Redis still takes when its memory is full.
for _, row in ipairs(deletes) do
	local key, name = P .. ':' .. ARGV[row[1] + 1], ARGV[row[1] + 2]
	redis.call('HDEL', key, name)
	if row[2] then
		redis.call('ZREM', key .. ':all', name)
	end
	if row[3] ~= '0' then
		redis.call('ZREM', key .. ':due', name)
	end
	if row[4] ~= '' then
		redis.call('ZREM', key .. ':group:' .. row[4], name)
	end
end

local function drop(stream, short, id, subject)
	redis.call('XACK', stream, group, id)
	redis.call('XDEL', stream, id)
	if subject ~= '' then
		redis.call('ZREM', P .. ':of:' .. short .. ':' .. subject, member_of(id))
	end
end

-- Members of the indexes of subjects, which go in together; before anything looks there.
local members = {}
local function index_entries()
	for index, added in pairs(members) do
		redis.call('ZADD', index, unpack(added))
	end
	members = {}
end

local run, notices = {}, {}
function run.k(a)
	index_entries()
	local entry = redis.call('XRANGE', ARGV[a + 1], ARGV[a + 3], ARGV[a + 3])[1]
	drop(ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], entry and subject_of(entry[2]) or '')
end

function run.s(a)
	index_entries()
	local index = P .. ':of:' .. ARGV[a + 2] .. ':' .. ARGV[a + 3]
	local found = redis.call('ZRANGE', index, 0, -1)
	for _, member in ipairs(found) do
		local ms, n = string.match(member, '^0*(%d+)-0*(%d+)$')
		drop(ARGV[a + 1], ARGV[a + 2], ms .. '-' .. n, '')
	end
	if #found > 0 then
		redis.call('DEL', index)
	end
end

-- What stays may go by another program's hand, which knows of no index.
function run.f(a)
	index_entries()
	redis.call('DEL', P .. ':of:' .. ARGV[a + 2] .. ':' .. ARGV[a + 3])
end

function run.t(a)
	index_entries()
	local least_ms, least_n = needed_from(ARGV[a + 1])
	for _, entry in ipairs(redis.call('XRANGE', ARGV[a + 1], '-', ARGV[a + 3])) do
		if is_needed(entry[1], least_ms, least_n) then
			break
		end
		drop(ARGV[a + 1], ARGV[a + 2], entry[1], subject_of(entry[2]))
	end
end

-- Ids are made here, of the store's clock, so that they tell an entry's time; never below what is in the stream.
local last = {}
local function next_id(stream, short)
	local id = last[stream]
	if not id then
		local info = redis.pcall('XINFO', 'STREAM', stream)
		id = { 0, 0 }
		if not info.err then
			id[1], id[2] = id_parts(field_of(info, 'last-generated-id'))
		elseif short == 'requests' then
			redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
		end
		last[stream] = id
	end
	if now() > id[1] then
		id[1], id[2] = now(), 0
	else
		id[2] = id[2] + 1
		if id[2] >= 2097152 then
			id[1], id[2] = id[1] + 1, 0
		end
	end
	return text(id[1]) .. '-' .. text(id[2])
end

-- Redis 7 counts by itself. What it refuses (a stream that is not there, or is ahead of the clock) and older servers cost a look at
-- the stream, whose answer holds two entries.
local any_id
local function append(stream, short, ...)
	any_id = any_id or text(now()) .. '-*'
	local id = not last[stream] and redis.pcall('XADD', stream, 'NOMKSTREAM', any_id, ...)
	if type(id) ~= 'string' then
		id = next_id(stream, short)
		redis.call('XADD', stream, id, ...)
	end
	return id
end

function run.a(a)
	local stream, short, subject, doc = ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 5]
	local id
	if ARGV[a + 4] == '1' then
		id = append(stream, short, 'event', doc, 'subject', subject)
	else
		id = append(stream, short, 'event', doc)
	end
	if subject ~= '' then
		local index = P .. ':of:' .. short .. ':' .. subject
		local added = members[index] or {}
		added[#added + 1], added[#added + 2] = '0', member_of(id)
		members[index] = added
		if #added >= 200 then
			index_entries()
		end
	end
	redis.pcall('PUBLISH', stream, doc)
end

function run.w(a)
	notices[#notices + 1] = ARGV[a + 1]
end

function run.c(a)
	redis.call('HINCRBY', P .. ':counters', ARGV[a + 1], ARGV[a + 2])
end

for _, a in ipairs(others) do
	run[ARGV[a]](a)
end
index_entries()
local heard_by
if #notices > 0 then
	heard_by = redis.pcall('PUBLISH', P .. ':notices', ARGV[2] .. ' ' .. table.concat(notices, '\n'))
end
local rev = text(redis.call('HINCRBY', P .. ':store', 'rev', '1'))
for _, row in ipairs(rows) do
	local a, due, of = row[1], row[3], row[4]
	local key, name = P .. ':' .. ARGV[a + 1], ARGV[a + 2]
	redis.call('HSET', key, name, rev .. ' ' .. ARGV[a + 6])
	if row[2] then
		redis.call('ZADD', key .. ':all', '0', name)
	end
	if of ~= ARGV[a + 4] then
		if of ~= '' then
			redis.call('ZREM', key .. ':group:' .. of, name)
		end
		if ARGV[a + 4] ~= '' then
			redis.call('ZADD', key .. ':group:' .. ARGV[a + 4], '0', name)
		end
	end
	if due ~= ARGV[a + 5] then
		if ARGV[a + 5] == '0' then
			redis.call('ZREM', key .. ':due', name)
		else
			redis.call('ZADD', key .. ':due', ARGV[a + 5], name)
		end
	end
end
redis.call('HSET', slots, ARGV[3], ARGV[4])
if ARGV[5] ~= '' then
	redis.call('EXPIRE', slots, ARGV[5])
end
local out = answer('OK', rev)
if type(heard_by) == 'number' then
	out[#out + 1] = text(heard_by)
end
return out
