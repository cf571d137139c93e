#include "apps/train/join/train_join.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include <spdlog/spdlog.h>

#include "actors/cluster/rendezvous_host.hpp"
#include "actors/protocol/build_version.hpp"
#include "apps/console/signals.hpp"
#include "apps/train/join/ask_job.hpp"
#include "apps/train/options/option_traits.hpp"
#include "apps/train/train_resume.hpp"
#include "messages/text/number_text.hpp"
#include "messages/time.hpp"
#include "net/addresses.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr double kLongestTimeout = 1e6;  // that --timeout may be

Error with_address(const TrainOptions& options, const Error& error) {
  return {error.code, "--join " + options.join + ": " + error.message};
}

Expected<void> check_sources(const CLI::App& app, const TrainOptions& options) {
  for (const char* other : {"--cluster", "--resume", "--out"})
    if (app.get_option(other)->count() > 0)
      return bad_input(fmt::format("--join {}: does not go with {}, which process 0 decides",
                                   options.join, other));
  if (!options.job_file.empty())
    return bad_input(fmt::format("--join {}: the job comes from there, leave {} out", options.join,
                                 options.job_file));
  if (std::isfinite(options.join_timeout_s) && options.join_timeout_s > 0 &&
      options.join_timeout_s <= 1e5)
    return {};
  return bad_input("--join-timeout: expected seconds, more than 0 and at most 100000");
}

bool is_given(const CLI::App& app, const std::string& name) {
  return app.get_option("--" + name)->count() > 0;
}

// The part of the options' identity that this process was given by itself. The number of workers of
// all processes is not known yet.
JobIdentity given_options(const CLI::App& app, const TrainOptions& options) {
  const JobIdentity stated = identity_of(options);
  JobIdentity given;
  for (const OptionTraits& option : option_traits()) {
    const std::string name = option.name;
    const bool compared =
        option.has(OptionTraits::identity) || option.has(OptionTraits::identity_unless_default);
    if (!compared || name == "workers" || !is_given(app, name)) continue;
    const auto value = stated.find(name);  // of some, the default is not stated
    given[name] = value == stated.end() ? kNotStated : value->second;
  }
  return given;
}

// The same of the identity of a process: with what concerns its connections.
JobIdentity given_identity(const CLI::App& app, const TrainOptions& options) {
  JobIdentity given = given_options(app, options);
  if (is_given(app, "transport") && !options.transport.empty())
    given["transport"] = options.transport;
  const bool is_time = options.timeout_s > 0 && options.timeout_s <= kLongestTimeout;
  if (is_given(app, "timeout") && is_time)  // others are refused with the other values
    given["timeout"] = number_text(to_seconds(from_seconds(options.timeout_s)));
  if (is_given(app, "trust-fabric") && options.certificates)
    given["trust-fabric"] = options.trust_fabric ? "true" : "false";
  return given;
}

}  // namespace

Expected<void> find_job_to_join(CLI::App& app, TrainOptions& options) {
  if (auto checked = check_sources(app, options); !checked) return checked;
  const auto address = parse_listen_address("--join", options.join, 1);
  if (!address) return address.error();
  JobQuestion question;
  question.host = address->host;
  question.port = address->port;
  if (const char* token = std::getenv(kJobTokenVariable)) question.secret = token;
  question.version = build_version();
  if (auto loaded = load_certificates(options); !loaded) return loaded;
  question.options = given_identity(app, options);
  question.tls = options.certificates;
  question.timeout = from_seconds(options.join_timeout_s);
  const SignalFlags signals;
  question.cancelled = [&signals] { return signals.stop_requested(); };
  const auto offer = ask_for_job(question);
  if (!offer) return with_address(options, offer.error());
  LaunchedProcess place;
  place.process = offer->process;
  place.processes = offer->processes;
  place.head_host = question.host;
  place.head_port = question.port;
  place.launcher = "--join";
  place.job = offer->job;
  options.place = place;
  if (app.get_option("--transport")->count() == 0) options.transport = offer->transport;
  options.of_state = StateJob::counts;
  auto read = read_job_text(app, options, offer->text, "the job at " + options.join);
  if (read && !options.notice.empty()) spdlog::warn("{}", options.notice);
  return read;
}

}  // namespace grapevine
