from clustertwin.telemetry.studies.reference.section import Picture, Section, Table
from clustertwin.telemetry.studies.reference.study_report import report


def test_the_page_escapes_what_it_is_told_and_draws_pictures_no_wider_than_they_are():
    picture = Picture("<b>", '<svg role="img" viewBox="0 0 500 300"></svg>')
    table = Table("t", ("a & b",), ((0.123456,),))
    page = report("The study", {"data": "<script>"}, [Section("sampling", "How?", "x < y", (table,), (picture,))])
    assert "<script>" not in page
    assert '<figure style="max-width: 700px"><figcaption>&lt;b&gt;</figcaption><svg' in page
    assert "a &amp; b" in page
    assert "x &lt; y" in page
