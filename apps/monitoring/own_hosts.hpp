// OwnHosts: the names by which a browser may ask a server of this machine.
#pragma once
#include <mutex>
#include <string>
#include <vector>

namespace grapevine {

// A page of another site can let its own name lead to an address of this machine (DNS rebinding):
// the browser then asks this server, and gives the answer to that page. But its requests name the
// site in their Host header. Thread-safe.
class OwnHosts {
 public:
  // `given`: further names, by which the user wants the server to be reached.
  explicit OwnHosts(std::vector<std::string> given);

  // Whether a request with that Host header is for this server: for an address as a number,
  // "localhost", a name of this machine or a given one, each with or without a port. True without
  // a header: no browser sends that. The first unknown name may take the time of a look-up of this
  // machine's own name, in full.
  bool include(const std::string& header);

 private:
  std::vector<std::string> given_;  // in small letters
  std::once_flag looked_up_;
  std::vector<std::string> names_;  // of this machine, once they are looked up
};

}  // namespace grapevine
