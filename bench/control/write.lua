-- Load for wrk: every request sets a variable of one of APPS apps to a value that it never had.
local apps = tonumber(os.getenv("APPS"))
local kind = os.getenv("LOAD")
local run = os.getenv("RUN")
local headers = { ["authorization"] = "Bearer " .. os.getenv("TOKEN"), ["content-type"] = "application/json" }
local threads = 0

function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end

function init(args)
  sent = id * 500
end

function request()
  sent = sent + 1
  local path = "/v1/apps/app-" .. (sent % apps)
  if kind == "read" then
    return wrk.format("GET", path, headers)
  end
  return wrk.format("PATCH", path, headers, '{"env":{"VALUE":"' .. run .. "-" .. id .. "-" .. sent .. '"}}')
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('FIGURES {"requests":%d,"seconds":%.3f,"refused":%d,"broken":%d,"p50_ms":%.1f,"p99_ms":%.1f}\n',
    summary.requests, summary.duration / 1e6, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
