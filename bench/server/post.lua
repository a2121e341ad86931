-- wrk: POST bodies that were prepared in a file, one a line, round and round.
-- wrk -s post.lua URL -- FILE PATH
-- At the end one line for the program that started it: RESULT and a JSON object.

local requests = {}
local at = 0

function init(args)
  local headers = { ["content-type"] = "application/json" }
  for line in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("POST", args[2], headers, line)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"elapsed_us":%d,"refused":%d,"broken":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
