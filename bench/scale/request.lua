-- wrk: each request goes to a topic that is picked at random, with one body from a file.
-- wrk -s request.lua URL -- FILE TOPICS PATH       (PATH has one %d, for the number of the topic)
-- Requests are made before the clock starts. Where all of them would take too much memory, only their
-- heads are, and a request is a head and the body.

dofile((debug.getinfo(1, "S").source:sub(2):gsub("[^/]*$", "")) .. "../server/result.lua")

local WHOLE_BYTES_MAX = 32 * 1024 * 1024
local threads = 0
local made, topics, body = {}, 0, nil
local random = math.random

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  local file = assert(io.open(args[1]))
  body = file:read("*a")
  file:close()
  topics = tonumber(args[2])
  local headers = { ["content-type"] = "application/json" }
  local is_whole = topics * #body <= WHOLE_BYTES_MAX
  for topic = 0, topics - 1 do
    local whole = wrk.format("POST", string.format(args[3], topic), headers, body)
    made[topic] = is_whole and whole or whole:sub(1, #whole - #body)
  end
  math.randomseed(os.time() * 64 + number)
  if is_whole then
    function request()
      return made[random(0, topics - 1)]
    end
  else
    function request()
      return made[random(0, topics - 1)] .. body
    end
  end
end
