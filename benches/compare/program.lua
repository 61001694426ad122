-- Tables, strings and closures that come and go; the argument is the length in per cent.
local turns = tonumber(arg[1])
local state = 1
local function random(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state // 65536 % n + 1
end

local function tree(depth)
  if depth == 0 then return {value = random(100)} end
  return {left = tree(depth - 1), right = tree(depth - 1), value = depth}
end

local function sum(t)
  return t.value + (t.left and sum(t.left) + sum(t.right) or 0)
end

local kept, total = {}, 0
for turn = 1, 5 * turns do
  total = total + sum(tree(9))
  local words = {}
  for i = 1, 800 do words[i] = string.format("%x-%d", random(1 << 20), i) end
  local text = table.concat(words, " ")
  local counts = {}
  for word in text:gmatch("%x+") do counts[word] = (counts[word] or 0) + #word end
  table.sort(words)
  total = total + #text
  -- A tenth of it lives longer, in place of what has lived long enough.
  kept[random(50)] = {words[random(800)], text:rep(random(3)), counts, function() return turn end}
end
for _, k in pairs(kept) do total = total + #k[2] + k[4]() end
print("total", total)
