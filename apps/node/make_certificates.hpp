// `grapevine node --make-certificates DIR`: the files of --tls.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct CertificateOptions {
  std::string folder;
  // A sub-folder with a key of its own for each; none: one for all. "node1=10.0.0.1": a machine
  // with its other names and addresses, behind '='.
  std::vector<std::string> hosts;
  std::int64_t days = 825;
  bool overwrite = false;
  bool json = false;
};

// Writes ca.pem, cert.pem and key.pem of a new CA, and says in `out` what to copy where, with
// `json` in one object: {"event": "certificates", "folders": [{"folder", "host", "names"}], "days",
// "at_once"}, where `host` is null for all machines (and `names` empty), and `at_once` false where
// the folder was missing for a moment. The CA's own key is not kept: more machines get a copy of a
// folder, or all get new ones. At any moment, also after an error, the folder has all old files or
// all new ones (see NewFolder). Errors (bad_input): a file exists; days or names that are none;
// (io): a folder cannot be written.
Expected<void> make_certificates(const CertificateOptions& options, std::ostream& out);

}  // namespace grapevine
