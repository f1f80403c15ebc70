// SHA-256 through OpenSSL's EVP interface.
#include "magister/core/sha256.h"

#include <openssl/evp.h>

#include "magister/core/error.h"

namespace magister {

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> evp{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  MAGISTER_CHECK(EVP_DigestInit_ex(context_->evp.get(), EVP_sha256(), nullptr) == 1, ExitCode::kInternal,
                 "OpenSSL has no SHA-256 (results could not be named by their inputs); install a usable libcrypto");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

Sha256& Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size());
  return *this;
}

Sha256& Sha256::update(std::string_view text) { return update(std::as_bytes(std::span(text))); }

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_->evp.get(), digest, &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string sha256_hex(std::string_view text) { return Sha256().update(text).hex(); }

}  // namespace magister
