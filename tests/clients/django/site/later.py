"""What the next release of the application changes: columns, types, names, data."""
from django.db import migrations, models


def capitals(apps, schema_editor):
    author = apps.get_model("library", "Author")
    author.objects.update(country=models.functions.Upper(models.Value("nz")))


class Migration(migrations.Migration):
    dependencies = [("library", "0001_initial")]
    operations = [
        migrations.AddField("author", "country", models.CharField(max_length=2, default="??")),
        migrations.RunPython(capitals, migrations.RunPython.noop),
        migrations.AlterField("author", "country", models.CharField(max_length=3, null=True, db_index=True)),
        migrations.AddField("subject", "weight", models.IntegerField(default=3, db_default=3)),
        migrations.RenameField("subject", "weight", "rank"),
        migrations.AlterField("subject", "rank", models.BigIntegerField(db_default=3)),
        migrations.CreateModel("Shelf", [("id", models.BigAutoField(primary_key=True)),
                                         ("subject", models.ForeignKey("library.subject", models.PROTECT))]),
        migrations.RenameModel("Shelf", "Rack"),
        migrations.RemoveConstraint("book", "book_out"),
        migrations.RemoveIndex("book", "book_lost"),
        migrations.RunSQL("CREATE VIEW library_titles AS SELECT title FROM library_book",
                          "DROP VIEW library_titles"),
        migrations.RemoveField("subject", "rank"),
        migrations.RemoveField("author", "country"),
        migrations.DeleteModel("Rack"),
    ]
