// Proofs between processes that they know a secret, without sending it. All functions
// are thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace grapevine {

// The environment variable with the secret of a job, by which its processes know each other: that
// of the user, or random, for each job its own.
inline constexpr char kJobTokenVariable[] = "GRAPEVINE_JOB_TOKEN";

// Random bytes of a nonce: enough that no two are ever the same.
inline constexpr std::size_t kNonceBytes = 16;

// `bytes` random bytes of the kernel, as twice as many hexadecimal digits.
std::string random_hex(std::size_t bytes);

// HMAC-SHA-256 (RFC 2104) of `parts` under `key`, as 64 hexadecimal digits. Each part counts with
// its length, so that no two lists of parts have one text.
std::string mac_of(const std::string& key, std::initializer_list<std::string_view> parts);

// Whether they are equal, in a time that depends on their lengths alone.
bool equal_secrets(const std::string& a, const std::string& b);

// Admits a connection to the data plane of one job. All zeros: none was given.
using JobToken = std::array<std::byte, 16>;

// The token of the job with the secret `key` (which may be empty) and the public `nonce`.
JobToken job_token(const std::string& key, const std::string& nonce);
// The time that it takes depends on neither token.
bool equal_tokens(const JobToken& a, const JobToken& b);

}  // namespace grapevine
