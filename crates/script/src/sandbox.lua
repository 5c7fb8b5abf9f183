-- What scripts see of Lua: Redis's libraries and functions, all of them read-only.
--
-- Lua 5.1 has no read-only tables. A script gets an empty table in the place of each library, which
-- reads through to the real one. Functions that could write to such a table, that show an error to
-- a script, or that can take long in C, are replaced. Names of functions of Lua's stay, since its
-- errors show them; `fault.rs` removes the places in this file from errors.

local ours = ...
local error, type, tostring, tonumber, getmetatable = error, type, tostring, tonumber, getmetatable
local select, pcall, xpcall, rawget, rawset, next = select, pcall, xpcall, rawget, rawset, next
local setmetatable, collectgarbage, unpack, pairs = setmetatable, collectgarbage, unpack, pairs
local rep, resume, insert, remove, concat, sort = string.rep, coroutine.resume, table.insert, table.remove, table.concat, table.sort
local upper, lower, reverse, sub, floor, ceil = string.upper, string.lower, string.reverse, string.sub, math.floor, math.ceil
local seen, check_stop, is_stopped, work, search = ours.seen, ours.check_stop, ours.is_stopped, ours.work, ours.search

local READ_ONLY = 'Attempt to modify a readonly table'
local real_of = {}

-- As the metatable of a protected table, a script sees an empty one.
local hidden

local function protect(real)
  local shown = {}
  real_of[shown] = real
  return setmetatable(shown, {
    __index = real,
    __newindex = function() error(READ_ONLY, 2) end,
    __metatable = hidden or shown,
  })
end
hidden = protect({})

local function refuse_protected(list)
  if real_of[list] then error(READ_ONLY, 3) end
end

local function copy(table)
  local copied = {}
  for key, value in next, table do
    copied[key] = value
  end
  return copied
end

-- As in Redis, pcall shows the text of an error table.
local function finish(ok, ...)
  if ok then return true, ... end
  local err = seen((...))
  check_stop(err)
  if type(err) == 'table' then
    local text = err.err
    if type(text) == 'string' or type(text) == 'number' then err = text end
  end
  return false, err
end

local function finish_handled(ok, ...)
  if not ok then check_stop((...)) end
  return ok, ...
end

local function finish_resumed(ok, ...)
  if ok then return true, ... end
  local err = seen((...))
  check_stop(err)
  return false, err
end

local real = {
  _VERSION = _VERSION, assert = assert, error = error, gcinfo = gcinfo, getmetatable = getmetatable,
  ipairs = ipairs, rawequal = rawequal, select = select, tonumber = tonumber, tostring = tostring,
  type = type,
}

function real.pcall(...) return finish(pcall(...)) end

-- Lua calls no hook in a handler of an error that a hook has raised, so nothing would end it.
function real.xpcall(body, handler)
  return finish_handled(xpcall(body, function(err)
    if is_stopped() then return nil end
    return handler(seen(err))
  end))
end

function real.rawget(table, key) return rawget(real_of[table] or table, key) end

function real.rawset(table, key, value)
  if real_of[table] then error(READ_ONLY, 0) end
  return rawset(table, key, value)
end

function real.setmetatable(table, metatable)
  if real_of[table] then error(READ_ONLY, 0) end
  return setmetatable(table, metatable)
end

function real.next(table, key) return next(real_of[table] or table, key) end

-- The real table must not be among the results.
function real.pairs(table)
  if real_of[table] then return real.next, table, nil end
  if type(table) ~= 'table' then return pairs(table) end
  return next, table, nil
end

-- Lua computes the number of results in 32 bits with a sign.
function real.unpack(list, first, last)
  local from = first == nil and 1 or tonumber(first)
  local to = last == nil and type(list) == 'table' and #list or tonumber(last)
  if from and to and not (to - from < 8000) then error('too many results to unpack', 2) end
  -- Each argument takes the place of a result.
  if last ~= nil then return unpack(list, first, last) end
  if first ~= nil then return unpack(list, first) end
  return unpack(list)
end

-- The collector of a state is not a script's to stop.
function real.collectgarbage(option, ...)
  if option == nil or option == 'collect' or option == 'count' or option == 'step' then
    return collectgarbage(option or 'collect', ...)
  end
  return 0
end

function real.loadstring(text, name) return ours.compile(text, name) end

function real.load(piece, name)
  if type(piece) ~= 'function' then ours.bad_argument(1, 'load', 'function expected', piece) end
  local pieces = {}
  while true do
    local ok, text = finish(pcall(piece))
    if not ok then return nil, text end
    if text == nil or text == '' then break end
    if type(text) ~= 'string' then return nil, 'reader function must return a string' end
    pieces[#pieces + 1] = text
  end
  return ours.compile(concat(pieces), name or '=(load)')
end

local strings = copy(string)
strings.find, strings.match = ours.find, ours.match

-- Repeats nothing without a loop that no limit ends.
function strings.rep(text, times)
  if text == '' then return '' end
  local count = tonumber(times)
  if count and count > 1000 and (type(text) == 'string' or type(text) == 'number') then
    ours.room(#tostring(text) * count)
    work(count)
  end
  return rep(text, times)
end

for name, change in next, { upper = upper, lower = lower, reverse = reverse } do
  strings[name] = function(text)
    if type(text) == 'string' and #text > 1000 then work(#text / 8) end
    return change(text)
  end
end

function strings.gmatch(text, pattern)
  local at = 1
  local function step(from, to, ...)
    if not from then return nil end
    at = to < from and to + 2 or to + 1
    return ...
  end
  ours.check_texts('gmatch', text, pattern)
  return function()
    if at > #tostring(text) + 1 then return nil end
    return step(search('gmatch', text, pattern, at, false))
  end
end
strings.gfind = strings.gmatch

function strings.gsub(text, pattern, by, most)
  if type(by) ~= 'function' and type(by) ~= 'table' then return ours.gsub_text(text, pattern, by, most) end
  local found = type(by) == 'function' and by or function(key) return by[key] end
  local pieces, count, at, bytes = {}, 0, 1, 0
  local function add(piece)
    bytes = bytes + #piece
    pieces[#pieces + 1] = piece
  end
  local function replace(from, to, ...)
    if not from then return false end
    count = count + 1
    add(sub(text, at, from - 1))
    local value = found(...)
    if not value then
      value = sub(text, from, to)
    elseif type(value) ~= 'string' and type(value) ~= 'number' then
      error('invalid replacement value (a ' .. type(value) .. ')', 3)
    end
    add(tostring(value))
    ours.room(bytes)
    if to < from then add(sub(text, from, from)) end
    at = to < from and from + 1 or to + 1
    return true
  end
  local limit = most == nil and 1 / 0 or tonumber(most)
  if not limit then ours.bad_argument(4, 'gsub', 'number expected', most) end
  ours.check_texts('gsub', text, pattern)
  text = tostring(text)
  local is_anchored, is_table = sub(pattern, 1, 1) == '^', type(by) == 'table'
  while count < limit and at <= #text + 1 and replace(search('gsub', text, pattern, at, true, is_table)) do
    if is_anchored then break end
  end
  add(sub(text, at))
  return concat(pieces), count
end

-- Positions as Lua makes integers of numbers.
local function whole(number)
  local number = tonumber(number)
  return number and (number < 0 and ceil(number) or floor(number))
end

-- From so many elements on, moving them is a loop that limits end.
local MANY = 1000

local tables = copy(table)

function tables.insert(list, ...)
  refuse_protected(list)
  if select('#', ...) == 2 and type(list) == 'table' then
    local at, value = ...
    at = whole(at)
    if at and #list - at > MANY then
      for to = #list + 1, at + 1, -1 do rawset(list, to, rawget(list, to - 1)) end
      return rawset(list, at, value) and nil
    end
  end
  return insert(list, ...)
end

function tables.remove(list, at)
  refuse_protected(list)
  local from = type(list) == 'table' and whole(at)
  if from and from >= 1 and #list - from > MANY then
    local count, value = #list, rawget(list, from)
    for to = from, count - 1 do rawset(list, to, rawget(list, to + 1)) end
    rawset(list, count, nil)
    return value
  end
  return remove(list, at)
end

function tables.sort(list, order)
  refuse_protected(list)
  if type(list) ~= 'table' or #list < 100 or order ~= nil and type(order) ~= 'function' then
    return sort(list, order)
  end
  -- The limits look at functions that are not in C.
  if order == nil then return sort(list, function(a, b) return a < b end) end
  return sort(list, function(a, b) return order(a, b) end)
end

function tables.foreach(list, body)
  for key, value in next, real_of[list] or list do
    local result = body(key, value)
    if result ~= nil then return result end
  end
end

function tables.foreachi(list, body)
  for at = 1, #list do
    local result = body(at, rawget(list, at))
    if result ~= nil then return result end
  end
end

local coroutines = copy(coroutine)
function coroutines.resume(...) return finish_resumed(resume(...)) end

local maths = copy(math)
ours.install_random(maths)

local redis, PCALL, CHECK = ours.redis, ours.PCALL, ours.CHECK
function redis.pcall(...) return redis.call(PCALL, ...) end
function redis.acl_check_cmd(...)
  local known = redis.call(CHECK, ...)
  return known
end

real.string, real.table, real.math = protect(strings), protect(tables), protect(maths)
real.coroutine, real.os = protect(coroutines), protect(ours.os)
real.redis, real.cjson, real.cmsgpack = protect(redis), protect(ours.cjson), protect(ours.cmsgpack)
real.struct, real.bit = protect(ours.struct), protect(ours.bit)

local of_strings = getmetatable('')
of_strings.__index = strings
of_strings.__metatable = protect({ __index = real.string })

setmetatable(real, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = protect(real)
real._G = environment

-- Whether no script has got around the protection.
local function is_clean()
  for shown in next, real_of do
    if next(shown) ~= nil then return false end
  end
  return true
end

-- Runs a script. Returns whether it has ended without an error, its value or error, and whether the
-- state is as it was, which it looks at if asked.
local function run(body, is_checked)
  local ok, value = xpcall(body, ours.handle)
  return ok, value, not is_checked or is_clean()
end

return environment, real, run
