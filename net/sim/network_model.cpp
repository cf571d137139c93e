#include "net/sim/network_model.hpp"

#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Where a term's value goes: a number of seconds or a probability, or a count.
struct Places {
  std::map<std::string, double*> numbers;
  std::map<std::string, std::int32_t*> counts;
};

Places places_of(NetworkModel& m) {
  return {{{"alpha", &m.link.alpha},
           {"beta", &m.link.beta},
           {"jitter", &m.jitter},
           {"loss", &m.loss},
           {"node-alpha", &m.inside.alpha},
           {"node-beta", &m.inside.beta},
           {"rack-alpha", &m.uplink.alpha},
           {"rack-beta", &m.uplink.beta},
           {"control", &m.control}},
          {{"node", &m.ranks_per_node}, {"rack", &m.nodes_per_rack}}};
}

std::vector<std::string> names_of(const Places& places) {
  std::vector<std::string> names;
  for (const auto& [name, at] : places.numbers) names.push_back(name);
  for (const auto& [name, at] : places.counts) names.push_back(name);
  return names;
}

constexpr double kMost = 1e6;  // seconds, as parse_duration() has it; and seconds per byte

Expected<double> term_number(const std::string& term, const std::string& text) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= 0 && value <= kMost))
    return bad_input("--network '" + term + "': expected a number from 0 to 1e6 after '='");
  return value;
}

Expected<void> read_term(const std::string& term, Places& places, std::set<std::string>& seen) {
  const auto equals = term.find('=');
  const std::string name = term.substr(0, equals);
  const auto number = places.numbers.find(name);
  const auto count = places.counts.find(name);
  if (number == places.numbers.end() && count == places.counts.end())
    return unknown_name("--network term", name, names_of(places));
  if (equals == std::string::npos)
    return bad_input("--network '" + term + "': expected " + name + "=NUMBER");
  if (!seen.insert(name).second)
    return bad_input("--network '" + term + "': '" + name + "' is given twice: give it once");
  const auto value = term_number(term, term.substr(equals + 1));
  if (!value) return value.error();
  if (number != places.numbers.end()) {
    *number->second = *value;
    return {};
  }
  if (*value < 1 || *value > 1e6 || *value != std::floor(*value))
    return bad_input("--network '" + term + "': expected a whole number, 1 or more");
  *count->second = static_cast<std::int32_t>(*value);
  return {};
}

}  // namespace

Expected<NetworkModel> parse_network(const std::string& spec) {
  NetworkModel model;
  Places places = places_of(model);
  std::set<std::string> seen;
  std::istringstream terms(spec);
  for (std::string term; std::getline(terms, term, ',');)
    if (auto read = read_term(term, places, seen); !read) return read.error();
  if (model.loss >= 1)
    return bad_input("--network loss=" + number_text(model.loss) +
                     ": expected a probability below 1");
  return model;
}

std::string network_text(const NetworkModel& model) {
  NetworkModel given = model, usual;
  Places places = places_of(given), defaults = places_of(usual);
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& value) {
    text += (text.empty() ? "" : ",") + name + "=" + value;
  };
  for (const auto& [name, at] : places.numbers)
    if (*at != *defaults.numbers[name]) add(name, number_text(*at));
  for (const auto& [name, at] : places.counts)
    if (*at != *defaults.counts[name]) add(name, std::to_string(*at));
  return text;
}

}  // namespace grapevine
