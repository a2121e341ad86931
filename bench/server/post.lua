-- wrk: POST one body that was prepared in a file, again and again, as redis-benchmark sends one command.
-- There is no function for each request: what wrk costs is taken from the two cores it shares.
-- wrk -s post.lua URL -- FILE PATH
-- At the end one line for the program that started it: RESULT and a JSON object.

function init(args)
  local file = assert(io.open(args[1]))
  wrk.body = file:read("*a")
  file:close()
  wrk.method = "POST"
  wrk.path = args[2]
  wrk.headers["content-type"] = "application/json"
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"elapsed_us":%d,"refused":%d,"broken":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
