-- What a script for wrk says at its end, to the program that started it: RESULT and a JSON object, one line.
-- Loaded by the scripts beside it with dofile.

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"elapsed_us":%d,"refused":%d,"broken":%d,'
      .. '"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
