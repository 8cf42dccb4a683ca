from paceline_core.auth import ApiKeyRecord, key_id, new_key, verify


def test_a_key_opens_its_own_record_and_no_other() -> None:
    record, key = new_key("team-a")
    other, other_key = new_key("team-a")
    assert verify(key, record)
    assert not verify(key, other)
    assert not verify(other_key, record)
    assert key_id(key) == record.key_id


def test_what_is_stored_never_holds_the_secret() -> None:
    record, key = new_key("team-a")
    assert key.rsplit("_", 1)[1] not in str(record.manifest("paceline-system"))


def test_a_record_survives_its_secret() -> None:
    record, _ = new_key("team-a")
    assert ApiKeyRecord.from_manifest(record.manifest("paceline-system")) == record


def test_a_malformed_key_has_no_id_and_opens_nothing() -> None:
    record, key = new_key("team-a")
    for wrong in ("", "sk-123", key[:-1], key + "a", key.upper(), key.replace("pl_", "xx_")):
        assert key_id(wrong) is None
        assert not verify(wrong, record)
