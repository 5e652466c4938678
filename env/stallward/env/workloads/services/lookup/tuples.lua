-- An in-memory database on Tarantool: orders of customers, of which a call gets some with their sum.
--
-- usage: tarantool tuples.lua SOCKET ROWS MEMORY_MIB SEED
local socket, rows, memory_mib, seed = arg[1], tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
local TEXT_BYTES, POOL_BYTES = 900, 65536

box.cfg {
    work_dir = require('fio').dirname(socket),
    memtx_memory = memory_mib * 1048576,
    wal_mode = 'none', checkpoint_interval = 0,
    log_level = 'error',
}
local orders = box.schema.space.create('orders')
orders:create_index('primary', { parts = { 1, 'unsigned' } })

-- Texts are pieces of one random text: they are made quickly, and hardly two are equal.
math.randomseed(seed)
local letters = {}
for i = 1, POOL_BYTES do letters[i] = string.char(97 + math.random(0, 25)) end
local pool = table.concat(letters)
for number = 0, rows - 1 do
    local at = number * 7 % (POOL_BYTES - TEXT_BYTES) + 1
    local customer = 'customer ' .. number % 1000
    orders:insert { number, customer, math.random(1, 99999), pool:sub(at, at + TEXT_BYTES - 1) }
end

-- The last value is always the same text: a client knows by it that all has come.
function total(...)
    local found, sum = {}, 0
    for _, text in ipairs { ... } do
        local order = orders:get(tonumber(text))
        if order == nil then error('no order ' .. text) end
        sum = sum + order[3]
        table.insert(found, order)
    end
    return found, ('%012d'):format(sum), 'that was all'
end

box.schema.user.grant('guest', 'super')
-- Under its name only once it answers.
box.cfg { listen = 'unix/:' .. socket .. '.early' }
require('fio').rename(socket .. '.early', socket)
