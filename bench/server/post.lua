-- wrk: POST one body that was prepared in a file, again and again, as redis-benchmark sends one command.
-- There is no function for each request: what wrk costs is taken from the cores it shares.
-- wrk -s post.lua URL -- FILE PATH

dofile((debug.getinfo(1, "S").source:sub(2):gsub("[^/]*$", "")) .. "result.lua")

function init(args)
  local file = assert(io.open(args[1]))
  wrk.body = file:read("*a")
  file:close()
  wrk.method = "POST"
  wrk.path = args[2]
  wrk.headers["content-type"] = "application/json"
end
