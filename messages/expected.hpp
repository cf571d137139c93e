// Expected<T>: a value or an Error. Recoverable conditions (bad input, lost peers, timeouts) are
// returned this way; broken invariants are GRAPEVINE_CHECKs (check.hpp).
#pragma once
#include <string>
#include <utility>
#include <variant>

#include "messages/check.hpp"

namespace grapevine {

enum class Errc {
  bad_input,    // the user can mend it: options, files, wirings (exit code 2)
  io,           // the operating system refused
  timeout,      // a bounded wait ran out
  peer_down,    // a machine, process or link is lost (exit code 3)
  protocol,     // bytes that no peer of this version sends
  unavailable,  // not in this build
  failed,       // the run itself failed (NaN, a worker's exception)
  stopped       // by request, with a checkpoint to resume from (exit code 4)
};

// The problem, its place, and the remedy: one line, no trailing full stop or newline.
struct Error {
  Errc code = Errc::failed;
  std::string message;
};

inline Error bad_input(std::string message) { return {Errc::bad_input, std::move(message)}; }

template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok().
  T& value() & {
    GRAPEVINE_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    GRAPEVINE_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T&& value() && {
    GRAPEVINE_CHECK(ok(), error().message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() = default;
  Expected(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace grapevine
