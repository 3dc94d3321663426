"""Which names and contents look like secrets."""

import pytest

from vastd.jobs.secrecy import holds_secret, looks_secret, may_hold_secret

SECRET = [
    ".env", ".env.local", ".envrc", "prod.env", "a/.ENV", "deploy/.env.production", "x.env.bak",
    "id_rsa", "id_ed25519", "id_ed25519.pub", "id_mykey", "server.pem", "tls.key", "cert.p12",
    "store.jks", ".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", "kubeconfig",
    "credentials.json", "client_secret_123.json", "my-secrets.yaml", "passwords.txt", "db_password",
    "apikey.txt", "API_KEYS.json", "wandb_key", "service-account.json", "serviceAccount.json",
    ".aws/config", "home/.ssh/known_hosts", "secrets/x.yaml", ".kube/config", "vault.kdbx",
    "secrets.py", "my_credentials.py", "api_keys.py", "terraform.tfvars", ".vast_api_key",
]  # fmt: skip
HARMLESS = [
    "train.py", "keypoints.py", "keypoints.json", "keyboard.yaml", "tokenizer.json", "monkey.txt",
    "key_utils.py", "secret_sharing.py", "password_model.py", "environment.yml", "env.py",
    "id_to_label.json", "README.md", "secrets_of_training.md", "src/keyframes.csv", "requirements.txt",
    "donkey.cfg", "keyword_list.txt", "hockey.csv", "tokenizer_config.json", "docs/keys.md",
]  # fmt: skip


@pytest.mark.req("SYN-08")
@pytest.mark.parametrize("path", SECRET)
def test_a_secret_is_known_by_its_name(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize("path", HARMLESS)
def test_code_and_ordinary_data_are_not_taken_for_secrets(path: str) -> None:
    assert not looks_secret(path)


@pytest.mark.parametrize(
    "head",
    [
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n", b"-----BEGIN RSA PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY-----", b'{\n "type" : "service_account",', b"text before\n-----BEGIN EC PRIVATE KEY",
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_first_bytes(head: bytes) -> None:
    assert holds_secret(head)


def test_only_small_files_that_are_no_source_are_looked_into() -> None:
    assert may_hold_secret("notes.txt", 1000)
    assert not may_hold_secret("tests/test_keys.py", 1000)
    assert not may_hold_secret("big.json", 10_000_000)
    assert not holds_secret(b"-----BEGIN CERTIFICATE-----")
