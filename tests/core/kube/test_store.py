"""One store of what a watch reports: lists replace, versions never go back, each change is returned."""

from paceline_core.kube import Deleted, Listed, ObjectKey, Upserted, WatchLost
from paceline_core.kube.cluster import ResourceStore, StoreChange, namespaced_key

Item = tuple[str, int]


def key(item: Item) -> str:
    return item[0]


def read(item: Item) -> int | None:
    return item[1] or None


def test_a_list_replaces_all_and_returns_what_it_changed() -> None:
    store: ResourceStore[str, int] = ResourceStore()
    store.apply(Listed((("a", 1), ("b", 2))), key, read)
    changes = store.apply(Listed((("b", 3), ("c", 4), ("d", 0))), key, read)
    assert store == {"b": 3, "c": 4}
    assert set(changes) == {StoreChange("b", 2, 3), StoreChange("c", None, 4), StoreChange("a", 1, None)}


def test_a_change_and_an_end_touch_one_entry_and_a_lost_watch_none() -> None:
    store: ResourceStore[str, int] = ResourceStore()
    assert store.apply(Upserted(("a", 1)), key, read) == [StoreChange("a", None, 1)]
    assert store.apply(WatchLost("gone"), key, read) == []
    assert store == {"a": 1}
    assert store.apply(Deleted(("b", 1)), key, read) == []
    assert store.apply(Deleted(("a", 1)), key, read) == [StoreChange("a", 1, None)]
    assert store == {}


def test_an_item_that_is_no_entry_any_more_is_removed() -> None:
    store: ResourceStore[str, int] = ResourceStore()
    store.apply(Upserted(("a", 1)), key, read)
    assert store.apply(Upserted(("a", 0)), key, read) == [StoreChange("a", 1, None)]


def test_with_versions_neither_an_older_entry_nor_an_older_end_counts() -> None:
    store: ResourceStore[str, int] = ResourceStore(lambda entry: entry)
    store.put("a", 5)
    assert (store.knows("a", 5), store.knows("a", 6), store.knows("b", 1)) == (True, False, False)
    assert store.put("a", 5) is None
    assert store.put("a", 4) is None
    assert store.remove("a", 4) is None
    assert store.replace({"a": 3}) == []
    assert store == {"a": 5}
    assert store.remove("a", 5) == StoreChange("a", 5, None)


def test_a_list_spares_what_stays() -> None:
    store: ResourceStore[str, int] = ResourceStore(lambda entry: entry)
    store.put("a", 5)
    store.put("b", 9)
    assert store.replace({}, stays=lambda entry: entry > 7) == [StoreChange("a", 5, None)]
    assert store == {"b": 9}


def test_a_manifest_without_a_namespace_is_in_the_default_one() -> None:
    assert namespaced_key({"metadata": {"name": "chat"}}) == ObjectKey("default", "chat")
