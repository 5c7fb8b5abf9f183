-- What scripts see of Lua: Redis's libraries and functions, all of them read-only.
--
-- Lua 5.1 has no read-only tables. A script gets an empty table in the place of each library, which
-- reads through to the real one. Functions that could write to such a table, or that show an error
-- to a script, are replaced.

local ours = ...
local error, type, tostring, getmetatable = error, type, tostring, getmetatable
local raw_pcall, raw_xpcall, raw_rawget, raw_rawset, raw_next = pcall, xpcall, rawget, rawset, next
local raw_setmetatable, raw_collect, raw_rep, raw_resume = setmetatable, collectgarbage, string.rep, coroutine.resume
local seen, check_stop, is_stopped = ours.seen, ours.check_stop, ours.is_stopped

local READ_ONLY = 'Attempt to modify a readonly table'
local real_of = {}

local function protect(real)
  local shown = {}
  real_of[shown] = real
  return raw_setmetatable(shown, {
    __index = real,
    __newindex = function() error(READ_ONLY, 2) end,
    __metatable = false,
  })
end

local function copy(table, without)
  local copied = {}
  for key, value in raw_next, table do
    copied[key] = value
  end
  return copied
end

-- As in Redis, pcall shows the text of an error table.
local function finish(ok, ...)
  if ok then return true, ... end
  check_stop()
  local err = seen((...))
  if type(err) == 'table' then
    local text = err.err
    if type(text) == 'string' or type(text) == 'number' then err = text end
  end
  return false, err
end

local function finish_handled(ok, ...)
  if not ok then check_stop() end
  return ok, ...
end

local function finish_resumed(ok, ...)
  if ok then return true, ... end
  check_stop()
  return false, seen((...))
end

local real = {
  _VERSION = _VERSION, assert = assert, error = error, gcinfo = gcinfo, getmetatable = getmetatable,
  ipairs = ipairs, next = next, pairs = pairs, rawequal = rawequal, select = select,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
}

function real.pcall(...) return finish(raw_pcall(...)) end

-- Lua calls no hook in a handler of an error that a hook has raised, so nothing would end it.
function real.xpcall(body, handler)
  return finish_handled(raw_xpcall(body, function(err)
    if is_stopped() then return nil end
    return handler(seen(err))
  end))
end

function real.rawget(table, key) return raw_rawget(real_of[table] or table, key) end

function real.rawset(table, key, value)
  if real_of[table] then error(READ_ONLY, 0) end
  return raw_rawset(table, key, value)
end

function real.setmetatable(table, metatable)
  if real_of[table] then error(READ_ONLY, 0) end
  return raw_setmetatable(table, metatable)
end

-- The collector of a state is not a script's to stop.
function real.collectgarbage(option, ...)
  if option == nil or option == 'collect' or option == 'count' or option == 'step' then
    return raw_collect(option or 'collect', ...)
  end
  return 0
end

function real.loadstring(text, name) return ours.compile(text, name) end

function real.load(piece, name)
  local pieces = {}
  while true do
    local text = piece()
    if text == nil or text == '' then break end
    pieces[#pieces + 1] = text
  end
  return ours.compile(table.concat(pieces), name or '=(load)')
end

local strings = copy(string)
-- Repeats nothing without a loop that no limit ends.
function strings.rep(text, times)
  if text == '' then return '' end
  return raw_rep(text, times)
end
function strings.dump() error('unable to dump given function', 2) end

local coroutines = copy(coroutine)
function coroutines.resume(...) return finish_resumed(raw_resume(...)) end

local maths = copy(math)
ours.install_random(maths)

real.string, real.table, real.math = protect(strings), protect(copy(table)), protect(maths)
real.coroutine, real.os = protect(coroutines), protect(ours.os)
real.redis, real.cjson, real.cmsgpack = protect(ours.redis), protect(ours.cjson), protect(ours.cmsgpack)
real.struct, real.bit = protect(ours.struct), protect(ours.bit)

local of_strings = getmetatable('')
of_strings.__index = strings
of_strings.__metatable = protect({ __index = real.string })

raw_setmetatable(real, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = protect(real)
real._G = environment

-- Whether no script has got around the protection, by table.insert for example.
local function is_clean()
  for shown in raw_next, real_of do
    if raw_next(shown) ~= nil then return false end
  end
  return true
end

-- Runs a script. Returns whether it has ended without an error, its value or error, and whether the
-- state is as it was.
local function run(body)
  local ok, value = raw_xpcall(body, ours.handle)
  return ok, value, is_clean()
end

return environment, real, run
