#include "serve/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "magister/core/error.h"
#include "magister/core/sha256.h"
#include "magister/serve/service.h"

namespace magister {
namespace {

constexpr std::size_t kSaltBytes = 16, kHashBytes = 32, kMostNames = 10000;

std::string scrypt(std::string_view token, std::string_view salt) {
  std::string hash(kHashBytes, '\0');
  const int done =
      EVP_PBE_scrypt(token.data(), token.size(), reinterpret_cast<const unsigned char*>(salt.data()), salt.size(),
                     1 << 14, 8, 1, 64 << 20, reinterpret_cast<unsigned char*>(hash.data()), hash.size());
  MAGISTER_CHECK(done == 1, ExitCode::kInternal, "scrypt failed (OpenSSL returned an error); report it");
  return hash;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string bytes_of(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2) {
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    const int high = digit(text[at]), low = digit(text[at + 1]);
    if (high < 0 || low < 0) return "";
    bytes += static_cast<char>(high * 16 + low);
  }
  return text.size() % 2 == 0 ? bytes : "";
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  MAGISTER_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1,
                 ExitCode::kInternal, "no random bytes (OpenSSL returned an error); report it");
  return bytes;
}

}  // namespace

Tokens::Tokens(const std::string& path) {
  std::ifstream file(path);
  MAGISTER_CHECK(file.is_open(), ExitCode::kConfig,
                 "{}: cannot be read (it holds the hashes of the tokens); make one with `magister serve --add-token "
                 "NAME:submit --tokens FILE`",
                 printable(path));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, role, salt, hash, more;
    words >> name >> role >> salt >> hash;
    Entry entry{{name, role == "read" ? Role::kRead : Role::kSubmit}, bytes_of(salt), bytes_of(hash)};
    MAGISTER_CHECK((role == "read" || role == "submit") && entry.salt.size() == kSaltBytes &&
                       entry.hash.size() == kHashBytes && !(words >> more),
                   ExitCode::kConfig,
                   "{}:{}: is not a name, a role (read, submit), a salt and a hash; make the line with --add-token",
                   printable(path), number);
    entries_.push_back(std::move(entry));
  }
  MAGISTER_CHECK(!entries_.empty(), ExitCode::kConfig,
                 "{}: holds no token (nobody could use the service); make one with --add-token NAME:submit",
                 printable(path));
}

std::optional<Principal> Tokens::find_known(std::string_view token) {
  const std::lock_guard lock(mutex_);
  const auto known = found_.find(sha256_hex(token));
  return known == found_.end() ? std::nullopt : std::optional(known->second);
}

std::optional<Principal> Tokens::find(std::string_view token) {
  if (token.empty() || token.size() > 256) return std::nullopt;
  if (std::optional<Principal> known = find_known(token)) return known;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(scrypt(token, entry.salt).data(), entry.hash.data(), kHashBytes) != 0) continue;
    const std::lock_guard lock(mutex_);
    found_.emplace(sha256_hex(token), entry.principal);
    return entry.principal;
  }
  return std::nullopt;
}

bool RateLimit::take(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const auto left_now = [&](const Bucket& bucket) {
    return std::min(most_, bucket.left + rate_ * std::chrono::duration<double>(now - bucket.when).count());
  };
  if (buckets_.size() > kMostNames)  // those of names that have all again are not needed
    std::erase_if(buckets_, [&](const auto& entry) { return left_now(entry.second) >= most_; });
  const auto [found, is_new] = buckets_.try_emplace(name, Bucket{most_, now});
  Bucket& bucket = found->second;
  bucket.left = left_now(bucket);
  bucket.when = now;
  if (bucket.left < 1) return false;
  bucket.left -= 1;
  return true;
}

const char* foreign_request(const std::string& host, const std::string& origin) {
  const std::size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string name = host.substr(0, end);
  if (!name.empty() && name != "localhost" && name != "127.0.0.1" && name != "[::1]")
    return "without --tokens the service answers to the names localhost and 127.0.0.1 alone";
  if (!origin.empty() && origin != "http://" + host && origin != "https://" + host)
    return "without --tokens a page of another site may ask for nothing";
  return nullptr;
}

std::string add_token(const std::string& tokens_file, const std::string& name, const std::string& role) {
  MAGISTER_CHECK(role == "read" || role == "submit", ExitCode::kConfig,
                 "\"{}\" is no role (a token may read, or submit too); write NAME:read or NAME:submit",
                 printable(role, 40));
  MAGISTER_CHECK(!name.empty() && name.find_first_of(" \t\n#") == std::string::npos, ExitCode::kConfig,
                 "\"{}\" is no name (it is one word of a line); write letters and digits", printable(name, 40));
  std::ifstream earlier(tokens_file);
  for (std::string line; std::getline(earlier, line);) {
    MAGISTER_CHECK(!line.starts_with(name + " "), ExitCode::kConfig,
                   "{}: has a token of {} (a name has one); remove its line, or choose another name",
                   printable(tokens_file), printable(name, 40));
  }
  const std::string token = "mgs_" + hex(random_bytes(24)), salt = random_bytes(kSaltBytes);
  const mode_t mask = umask(077);
  std::ofstream file(tokens_file, std::ios::app);
  umask(mask);
  file << name << ' ' << role << ' ' << hex(salt) << ' ' << hex(scrypt(token, salt)) << '\n' << std::flush;
  MAGISTER_CHECK(file.good(), ExitCode::kInputOutput, "{}: cannot be written; look at its folder",
                 printable(tokens_file));
  return token;
}

}  // namespace magister
